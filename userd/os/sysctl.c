// SPDX-License-Identifier: GPL-2.0
/* Reads settings of the kernel, see sysctl.h. */
#include "os/sysctl.h"

#include <stdio.h>

long long tbg_sysctl(const char *path, long long none)
{
	FILE *f = fopen(path, "re");
	long long ret = none;

	if (!f)
		return none;
	if (fscanf(f, "%lld", &ret) != 1)
		ret = none;
	fclose(f);
	return ret;
}
