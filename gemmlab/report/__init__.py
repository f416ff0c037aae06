"""Format the lab's results as tables, pages, Markdown and SVG. Uses no device."""
