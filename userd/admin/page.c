// SPDX-License-Identifier: GPL-2.0
/*
 * Includes page.html unchanged; the assembler finds it on the include path.
 */
#include "admin/page.h"

__asm__(".section .rodata\n"
	".global tbg_admin_page, tbg_admin_page_end\n"
	"tbg_admin_page:\n"
	".incbin \"admin/page.html\"\n"
	"tbg_admin_page_end:\n"
	".byte 0\n"
	".previous\n");
