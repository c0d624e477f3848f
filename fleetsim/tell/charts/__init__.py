"""Kinds of pictures for pages, one file each: data in, a `Chart` out.

Every label that is handed over is plain text: what plotly would read as a tag is escaped here. Nothing is told by
colour alone: lines have dashes and symbols of their own, bars patterns and written values.
"""
