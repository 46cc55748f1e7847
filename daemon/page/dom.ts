/**
 * Creates elements from data. All text is inserted as text: programs choose their names, and markup
 * in them is displayed, never parsed. The page's policy (Trusted Types) forbids everything else.
 */

interface ElementFields {
  readonly class?: string;
  readonly id?: string;
  readonly text?: string;
  readonly title?: string;
  /** Other attributes; undefined ones are omitted. */
  readonly attributes?: Readonly<Record<string, string | undefined>>;
  readonly onClick?: () => void;
}

export function el<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  fields: ElementFields = {},
  children: readonly (Node | string)[] = [],
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  if (fields.class !== undefined) element.className = fields.class;
  if (fields.id !== undefined) element.id = fields.id;
  if (fields.title !== undefined) element.title = fields.title;
  setAttributes(element, fields.attributes ?? {});
  if (fields.text !== undefined) element.append(fields.text);
  if (fields.onClick !== undefined) element.addEventListener('click', fields.onClick);
  element.append(...children);
  return element;
}

export function svg<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attributes: Readonly<Record<string, string | number | undefined>> = {},
  children: readonly (Node | string)[] = [],
): SVGElementTagNameMap[K] {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  setAttributes(element, attributes);
  element.append(...children);
  return element;
}

/** Sets text only if it differs: preserves selections and avoids needless layout. */
export function setText(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** Shows these elements, in this order. One that keeps its place keeps focus and scroll position. */
export function showChildren(parent: Element, elements: readonly Element[]): void {
  const shown = new Set(elements);
  for (const child of [...parent.children]) if (!shown.has(child)) child.remove();
  let place = parent.firstElementChild;
  for (const element of elements) {
    if (element === place) place = place.nextElementSibling;
    else parent.insertBefore(element, place);
  }
}

/** The element with this id in the page's HTML. Throws if there is none. */
export function byId(id: string): HTMLElement {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`the page has no element ${id}`);
  return found;
}

function setAttributes(
  element: Element,
  attributes: Readonly<Record<string, string | number | undefined>>,
): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined) element.setAttribute(name, String(value));
  }
}
