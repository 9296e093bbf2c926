"""System checks: what is wrong with a site's steps and settings, before a pass finds out."""
