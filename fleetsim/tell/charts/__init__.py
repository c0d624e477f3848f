"""Charts of pages: data in three shapes (`chart.py`), drawn by one table (`draw.py`) as HTML and SVG."""
