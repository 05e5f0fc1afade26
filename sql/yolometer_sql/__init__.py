"""The SQL of yolometer: migrations, ROI queries, and the catalogue that finds them."""
