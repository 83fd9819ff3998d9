# SPDX-License-Identifier: Apache-2.0
"""The little of torchvision that MNIST scripts use, over the digits of scikit-learn."""

from torchvision import datasets as datasets
from torchvision import transforms as transforms
