import { setUp as setUpCharts } from "./charts.js";
import { allowPins, reload, setUp as setUpGallery } from "./gallery.js";
import { setUp as setUpForm } from "./generate.js";

setUpForm(reload);
setUpGallery();
setUpCharts((stats) => allowPins(stats.can_pin));
