from fake_driver import gpu, slow_multiply_adds
