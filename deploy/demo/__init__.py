"""The demo: starts the services, sends prompts that resemble each other, shows what was saved."""
