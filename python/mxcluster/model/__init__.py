"""The classes of all data that crosses a boundary: between hosts, files, users and programs."""
