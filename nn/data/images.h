// Images: CIFAR and folders of files, augmentation, features, and pictures for people.
#pragma once

#include "nn/data/images/augment.h"
#include "nn/data/images/cifar.h"
#include "nn/data/images/encode_png.h"
#include "nn/data/images/image_folder.h"
#include "nn/data/images/scattering.h"
