// SPDX-License-Identifier: GPL-2.0
// Asks for the page's own parts and shows which tier answered each.
"use strict";
const parts = ["index.html", "style.css", "site.js", "sled.svg", "license.txt", "large.bin"];

async function ask(url) {
	const reply = await fetch(url, { cache: "no-store" });
	const body = await reply.arrayBuffer();
	return [url, body.byteLength, reply.headers.get("Cache-Status") ?? "none"];
}

async function show() {
	const rows = document.querySelector("#answers tbody");
	const answers = [];
	for (const url of parts)
		answers.push(await ask(url));
	rows.replaceChildren(...answers.map((cells) => {
		const row = document.createElement("tr");
		for (const text of cells)
			row.insertCell().textContent = text;
		return row;
	}));
}

document.querySelector("#again").addEventListener("click", show);
show();
