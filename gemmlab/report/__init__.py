"""Records to Markdown and SVG. Touches no device."""
