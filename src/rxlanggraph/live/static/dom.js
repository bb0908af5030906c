/** Elements: made, and updated in place. What the program has put there is only ever set as text. */

const SVG = "http://www.w3.org/2000/svg";
// Controls, and marks that change the direction of text: they would show an id as another one.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

export const find = (id) => document.getElementById(id);

/** Text of the program as it is to be seen: what would be unseen is a replacement character. */
export function plain(text) {
  return String(text ?? "").replace(UNSEEN, "\ufffd");
}

/** Make an element. Strings among the children become text. */
export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) setAttribute(element, name, value);
  element.append(...children);
  return element;
}

/** Set text, unless it is there: what is selected stays selected. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Set an attribute, unless it is there; true is an empty one, false and null are none. */
export function setAttribute(element, name, value) {
  if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else {
    const text = value === true ? "" : String(value);
    if (element.getAttribute(name) !== text) element.setAttribute(name, text);
  }
}

/** A text of the program: in a direction of its own, and whole as its tooltip if it is cut. */
export function setName(element, text, otherwise = "–") {
  const shown = text === null || text === undefined || text === "" ? otherwise : plain(text);
  setText(element, shown);
  setAttribute(element, "title", shown.length > 24 ? shown : null);
}

// Where libraries are on that machine: what matters comes after it.
const LIBRARIES = /"[^"\n]*\/(?:site-packages|lib\/python3\.\d+t?)\//g;

/** A stack, of which the end is seen: the innermost call is there. */
export function stackElement() {
  const stack = el("pre", { class: "stack", tabindex: 0, "aria-label": "Stack" });
  const showEnd = () => { stack.scrollTop = stack.scrollHeight; };
  stack.show = (text) => {
    const shown = plain(text).replace(LIBRARIES, '"…/');
    if (stack.textContent === shown) return;
    setText(stack, shown);
    showEnd();
  };
  stack.fold = (open) => {
    const fold = el("details", { open }, el("summary", {}, "Stack"), stack);
    fold.addEventListener("toggle", showEnd);
    return fold;
  };
  return stack;
}

/**
 * Make the children of `parent` those of `items`, in their order. A child is kept by its key, so it
 * keeps the focus, what is selected in it, and what is typed. `create(item)` makes one, with a
 * method `update(item)`.
 */
export function reconcile(parent, items, keyOf, create) {
  const known = (parent.known ??= new Map());
  const wanted = new Map(items.map((item) => [keyOf(item), item]));
  for (const [key, child] of known) {
    if (wanted.has(key)) continue;
    const hadFocus = child.contains(document.activeElement);
    child.remove();
    known.delete(key);
    if (hadFocus) parent.closest("section")?.querySelector("h2")?.focus({ preventScroll: true });
  }
  let place = parent.firstChild;
  for (const [key, item] of wanted) {
    let child = known.get(key);
    if (!child) {
      child = create(item);
      known.set(key, child);
    }
    child.update(item);
    if (child === place) place = place.nextSibling;
    else move(parent, child, place);
  }
}

function move(parent, child, before) {
  if (child.parentNode === parent && parent.moveBefore) return parent.moveBefore(child, before);
  const focused = child.contains(document.activeElement) ? document.activeElement : null;
  parent.insertBefore(child, before);
  focused?.focus({ preventScroll: true });
}

/** Make an empty table in `holder`, once. Columns are [heading, class]; returns its body. */
export function table(holder, caption, columns) {
  if (!holder.body) {
    const heads = columns.map(([text, kind]) => el("th", { scope: "col", class: kind }, text));
    holder.body = el("tbody");
    holder.append(
      el("table", {}, el("caption", { class: "unseen" }, caption),
        el("thead", {}, el("tr", {}, ...heads)), holder.body));
    // What scrolls has to be reached by the keyboard, too.
    setAttribute(holder, "tabindex", "0");
    setAttribute(holder, "role", "region");
    setAttribute(holder, "aria-label", caption);
  }
  return holder.body;
}

/** Rows, or one that says why there are none. */
export function rowsOr(body, items, keyOf, create, empty) {
  const columns = body.parentNode.tHead.rows[0].cells.length;
  const or = items.length ? items : [{ empty }];
  reconcile(body, or, (item) => (item.empty ? `empty: ${item.empty}` : keyOf(item)), (item) => {
    if (!item.empty) return create(item);
    const row = el("tr", {}, el("td", { colspan: columns, class: "empty" }, item.empty));
    row.update = () => {};
    return row;
  });
}

/** Figures with their names, as a list of definitions: [name, text]. */
export function drawFigures(list, figures) {
  reconcile(list, figures, ([name]) => name, ([name]) => {
    const value = el("dd");
    const element = el("div", {}, el("dt", {}, name), value);
    element.update = ([, latest]) => setText(value, latest);
    return element;
  });
}
