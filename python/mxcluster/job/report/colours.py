"""The colours of the pictures, and the style of their axes.

page.html inverts these colours on a dark screen. A second picture would take a third of a second of
each job.
"""

PAPER, INK, FAINT, GRID, BAD = "#ffffff", "#1f2933", "#5c6b7a", "#e4e8ec", "#c62828"
COLOURS = (
    "#4c78d0",
    "#f08a24",
    "#3fa55b",
    "#e0524f",
    "#9a6fd0",
    "#22a6b3",
    "#d96fae",
    "#a9842c",
    "#7f8fa3",
    "#8fbf3f",
)
