# SPDX-License-Identifier: GPL-2.0
#
# For the Makefiles of bpf, userd and tools: $(call relocatable,FILE), behind a compilation.
# In a copied tree, where $(O) is another folder, the file of dependencies still holds.

relocatable = sed -i 's|$(O)/|$$(O)/|g' $(1)
