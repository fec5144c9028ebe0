// SPDX-License-Identifier: GPL-2.0
/*
 * The part of ncurses that a page of lines needs. Called by top.c.
 */
#include "screen.h"

#include <curses.h>
#include <term.h>
#include <unistd.h>
#include <wchar.h>

#define CTRL_C 3
#define CTRL_L 12

static SCREEN *screen;

bool tbg_screen_open(void)
{
	const char *cup;
	bool able;
	int err;

	if (!isatty(STDOUT_FILENO) || setupterm(NULL, STDOUT_FILENO, &err) != OK)
		return false;
	cup = tigetstr("cup");
	able = cup && cup != (char *)-1;
	del_curterm(cur_term);
	screen = able ? newterm(NULL, stdout, stdin) : NULL;
	if (!screen)
		return false;
	cbreak();
	noecho();
	curs_set(0);
	nodelay(stdscr, TRUE);
	keypad(stdscr, TRUE);
	return true;
}

void tbg_screen_close(void)
{
	endwin();
	delscreen(screen);
}

unsigned int tbg_screen_columns(void)
{
	return COLS;
}

unsigned int tbg_screen_rows(void)
{
	return LINES;
}

/* Its columns, and its bytes in *ret_n; bytes that are no character are shown as '?'. */
static int character(const char *text, size_t len, wchar_t *ret, size_t *ret_n)
{
	mbstate_t state = { 0 };
	size_t n = mbrtowc(ret, text, len, &state);
	int width = n && n <= len ? wcwidth(*ret) : -1;

	*ret_n = n && n <= len ? n : 1;
	if (width >= 0)
		return width;
	*ret = L'?';
	return 1;
}

void tbg_screen_line(unsigned int row, const char *text, size_t len,
		     enum tbg_screen_look look)
{
	static const attr_t attrs[] = {
		[TBG_SCREEN_PLAIN] = A_NORMAL,
		[TBG_SCREEN_HEADING] = A_REVERSE,
		[TBG_SCREEN_LOUD] = A_BOLD,
	};
	int column = 0;
	wchar_t c;
	size_t n;

	move(row, 0);
	attrset(attrs[look]);
	for (size_t at = 0; at < len; at += n) {
		column += character(text + at, len - at, &c, &n);
		if (column > COLS)	/* curses would continue in the next line */
			break;
		addnwstr(&c, 1);
	}
	for (; look == TBG_SCREEN_HEADING && column < COLS; column++)
		addch(' ');
	attrset(A_NORMAL);
}

void tbg_screen_clear(void)
{
	erase();
}

void tbg_screen_flush(void)
{
	refresh();
}

enum tbg_screen_key tbg_screen_key(void)
{
	switch (getch()) {
	case ERR:
		return TBG_SCREEN_NOTHING;
	case 'q':
	case 'Q':
	case CTRL_C:
		return TBG_SCREEN_END;
	case ' ':
		return TBG_SCREEN_NOW;
	case CTRL_L:
		clearok(stdscr, TRUE);
		return TBG_SCREEN_AGAIN;
	case KEY_RESIZE:
		return TBG_SCREEN_AGAIN;
	}
	return TBG_SCREEN_OTHER;
}
