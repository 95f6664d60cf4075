import { setUp as setUpCharts } from "./charts.js";
import { allowPins, reloadUntil, setUp as setUpGallery } from "./gallery.js";
import { setUp as setUpForm } from "./generate.js";

setUpForm(reloadUntil);
setUpGallery();
setUpCharts((stats) => allowPins(stats.can_pin));
