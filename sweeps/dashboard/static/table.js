"use strict";
// The table of trials: sorted, filtered and paged in the browser.

class TrialTable {
  static ROWS = 25;

  // `address` returns the address of a trial's view. `filtered` is called after the reader has changed the filter.
  constructor(element, address, filtered) {
    this.element = element;
    this.columns = []; this.rows = []; this.page = 0; this.sort = {key: "trial", down: true}; this.query = ""; this.best = null;
    this.address = address;
    this.filtered = filtered;
    element.innerHTML = `<div class="bar"><input type="search" aria-label="Filter" placeholder="Filter: state=COMPLETE eta&lt;0.1 text">
      <span class="note count"></span><button type="button" class="previous">‹</button><button type="button" class="next">›</button></div>
      <div class="table"><table><thead><tr></tr></thead><tbody></tbody></table></div>`;
    const search = element.querySelector("input");
    search.addEventListener("input", () => { this.query = search.value; this.page = 0; this.draw(); this.filtered(); });
    for (const [name, by] of [["previous", -1], ["next", 1]])
      element.querySelector(`.${name}`).addEventListener("click", () => { this.page += by; this.draw(); });
    element.querySelector("thead").addEventListener("click", event => {
      const key = event.target.closest("th")?.dataset.key;
      if (!key) return;
      this.sort = {key, down: this.sort.key === key && !this.sort.down};
      this.page = 0;
      this.draw();
    });
    element.querySelector("tbody").addEventListener("click", event => {
      const row = event.target.closest("tr");
      if (row) location.hash = this.address(row.dataset.trial);
    });
  }

  show(columns, rows, best) {
    Object.assign(this, {columns, rows, best});
    this.draw();
  }

  // The rows that fit the filter, in the order of the table.
  chosen() {
    const wanted = this.query.toLowerCase().split(/\s+/).filter(Boolean).map(word => this.condition(word));
    const rows = this.rows.filter(row => wanted.every(fits => fits(row)));
    const at = this.columns.findIndex(column => column.key === this.sort.key), sign = this.sort.down ? -1 : 1;
    const order = (a, b) => {
      if (a[at] === null || b[at] === null) return (a[at] === null) - (b[at] === null); // missing values come last
      return sign * (typeof a[at] === "number" && typeof b[at] === "number" ? a[at] - b[at] : String(a[at]).localeCompare(String(b[at])));
    };
    return at < 0 ? rows : rows.toSorted(order);
  }

  // A word such as `eta<0.1` compares a column. Any other word must be in some cell.
  condition(word) {
    const [, name, operator, wanted] = word.match(/^(.+?)(!=|<=|>=|=|<|>)(.+)$/) ?? [];
    const at = this.columns.findIndex(column => [column.label, column.key].some(known => known.toLowerCase() === name));
    if (at < 0) return row => row.some(cell => cell !== null && String(cell).toLowerCase().includes(word));
    const number = Number(wanted);
    return row => {
      const cell = row[at];
      if (cell === null) return operator === "!=";
      const [a, b] = typeof cell === "number" && !Number.isNaN(number) ? [cell, number] : [String(cell).toLowerCase(), wanted];
      return {"=": a === b, "!=": a !== b, "<": a < b, ">": a > b, "<=": a <= b, ">=": a >= b}[operator];
    };
  }

  draw() {
    const chosen = this.chosen(), pages = Math.max(1, Math.ceil(chosen.length / TrialTable.ROWS));
    this.page = Math.min(Math.max(0, this.page), pages - 1);
    const from = this.page * TrialTable.ROWS, shown = chosen.slice(from, from + TrialTable.ROWS);
    this.element.querySelector("thead tr").replaceChildren(...this.columns.map(column => {
      const cell = make("th", {className: column.number ? "number" : ""}, make("button", {type: "button", textContent: column.label}));
      cell.dataset.key = column.key;
      cell.scope = "col";
      if (column.key === this.sort.key) cell.ariaSort = this.sort.down ? "descending" : "ascending";
      return cell;
    }));
    this.element.querySelector("tbody").replaceChildren(...shown.map(row => {
      const line = make("tr", {className: row[0] === this.best ? "best" : ""});
      line.dataset.trial = row[0];
      line.append(...row.map((value, at) => this.cell(value, this.columns[at])));
      return line;
    }));
    const of = chosen.length === this.rows.length ? "" : ` (${this.rows.length.toLocaleString("en")} in all)`;
    const range = shown.length ? `${from + 1}–${from + shown.length} of ` : "";
    this.element.querySelector(".count").textContent = `${range}${chosen.length.toLocaleString("en")} trials${of}`;
    this.element.querySelector(".previous").disabled = this.page === 0;
    this.element.querySelector(".next").disabled = this.page >= pages - 1;
  }

  cell(value, column) {
    const cell = make("td", {className: column.number ? "number" : ""});
    if (column.key === "state") cell.append(make("span", {className: `state ${value}`, textContent: value}));
    else if (column.key === "trial") cell.append(make("a", {href: `#${this.address(value)}`, textContent: value}));
    else cell.textContent = value === null ? "" : number(value);
    if (value !== null) cell.title = String(value);
    return cell;
  }
}

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

function number(value) {
  return typeof value === "number" && !Number.isInteger(value) ? String(Number(value.toPrecision(6))) : String(value);
}
