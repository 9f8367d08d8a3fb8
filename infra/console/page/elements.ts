type Attributes = Record<string, string | number | boolean | ((event: never) => void)>;
type Child = Node | string | number | false | undefined | Attributes;

/** Shows control characters, and those that turn the direction of the text around them, as a replacement character. */
const replaceControls = (text: string) => text.replace(/(?![\n\t])[\p{Cc}\p{Bidi_Control}]/gu, "\ufffd");

/**
 * Creates an element from a name, perhaps with a class (`p.quiet`), and from children and attributes. Texts become text
 * nodes, never HTML; a function is a listener, and true an attribute without a value.
 */
export const create = <Name extends keyof HTMLElementTagNameMap>(
  selector: Name | `${Name}.${string}`,
  ...children: readonly Child[]
): HTMLElementTagNameMap[Name] => {
  const [name, className = ""] = selector.split(".") as [Name, string?];
  const element = document.createElement(name);
  element.className = className;
  for (const child of children)
    if (child instanceof Node) element.append(child);
    else if (typeof child === "string" || typeof child === "number") element.append(replaceControls(`${child}`));
    else
      for (const [key, value] of Object.entries(child || {}))
        if (typeof value === "function") element.addEventListener(key, value as EventListener);
        else if (value !== false) element.setAttribute(key, value === true ? "" : String(value));
  return element;
};

/** Returns a time in the format that cases and Kubernetes have, such as 2026-11-27T14:05:09Z. */
export const formatTime = (at: number): string => new Date(at).toISOString().replace(/\.\d+/, "");

/** Returns the part of this format without the date. */
export const formatTimeOfDay = (at: number): string => formatTime(at).slice(11);

/** Asks the console's server; throws its sentence if it has no answer. */
export const ask = async <Answer>(path: string, question?: object): Promise<Answer> => {
  const body = question && JSON.stringify(question);
  const response = await fetch(path, body === undefined ? {} : { method: "POST", body }).catch(() => undefined);
  if (response?.ok) return response.json();
  throw new Error(
    (await response?.text()) ?? "The gateway doesn't answer. Start it again by postern serve, then do this again.",
  );
};

/** Returns an element that shows what the server answers, or the sentence of its error, unless its page was left. */
export const showLater = <Answer>(answer: Promise<Answer>, show: (answer: Answer) => Node): HTMLElement => {
  const place = create("div", create("p.quiet", "Loading…"));
  answer
    .then((content) => (place.isConnected ? show(content) : ""))
    .catch((error: Error) => create("p.failure", { role: "alert" }, error.message))
    .then((content) => place.replaceChildren(content));
  return place;
};

/** Says that a filter lets nothing through. `what` is what it filters, such as "review". */
export const describeNoMatch = (what: string, words: string): string =>
  `No ${what} has all words of “${words.trim()}”. Delete words to see more.`;

export const createBadge = (verdict: string) =>
  create(`span.badge ${/would|denied|changed|failed|undecided/.exec(verdict)?.[0] ?? ""}`, verdict);

/** Returns a part of a page with a title; false if it has no content. */
export const createSection = (title: string, ...content: readonly Child[]) =>
  content.some(Boolean) && create("section", create("h2", title), ...content);

const scrollable = (label: string) => ({ tabindex: 0, role: "group", "aria-label": label });
export const createCode = (text: string, label: string) => create("pre", scrollable(label), create("code", text));

export const createTable = (heads: readonly Child[], rows: readonly (readonly Child[])[]) => {
  const createRow = (cells: readonly Child[]) => create("tr", ...cells.map((cell) => create("td", cell)));
  const head = create("tr", ...heads.map((title) => create("th", { scope: "col" }, title)));
  const body = create("tbody", ...rows.map(createRow));
  return create("div.wide", scrollable("Table"), create("table", create("thead", head), body));
};

/** Returns names with their texts; false if there are none. */
export const createDefinitions = (entries: Record<string, string>) => {
  const all = Object.entries(entries);
  const toNodes = ([name, text]: [string, string]) => [create("dt", name), create("dd", create("code", text))];
  return all.length > 0 && create("dl", ...all.flatMap(toNodes));
};
