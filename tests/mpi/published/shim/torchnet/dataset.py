# SPDX-License-Identifier: Apache-2.0
"""``SplitDataset``: named consecutive parts of a data set."""

import torch


class SplitDataset(torch.utils.data.Dataset):
    def __init__(self, dataset, partitions):
        self.dataset, self.parts, start = dataset, {}, 0
        for name, share in partitions.items():
            length = int(share * len(dataset))
            self.parts[name] = range(start, start + length)
            start += length

    def select(self, name):
        self.chosen = self.parts[name]

    def __len__(self):
        return len(self.chosen)

    def __getitem__(self, index):
        return self.dataset[self.chosen[index]]
