from fake_driver import gpu
