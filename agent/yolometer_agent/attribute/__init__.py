"""Attribution: for which run, user and team each GPU works. One source of knowledge a file, found by discovery."""
