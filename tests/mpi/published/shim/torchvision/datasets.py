# SPDX-License-Identifier: Apache-2.0
"""``MNIST``: the 8 x 8 digits of scikit-learn, three times as large, in a frame of 28 x 28."""

import numpy as np
import sklearn.datasets
import torch


class MNIST(torch.utils.data.Dataset):
    def __init__(self, root, train=True, download=False, transform=None):
        images, digits = sklearn.datasets.load_digits(return_X_y=True)
        order = np.random.default_rng(0).permutation(len(digits))
        chosen = order[:1536] if train else order[1536:1792]
        self.images = (images[chosen].reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
        self.digits, self.transform = digits[chosen], transform

    def __len__(self):
        return len(self.digits)

    def __getitem__(self, index):
        image = np.pad(self.images[index].repeat(3, 0).repeat(3, 1), 2)
        return self.transform(image), int(self.digits[index])
