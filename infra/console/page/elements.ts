type Attributes = Record<string, string | number | boolean | ((event: never) => void)>;
type Child = Node | string | number | false | undefined | Attributes;

/** Replaces control characters, and characters that change the text direction, with U+FFFD. Keeps newlines and tabs. */
const replaceControls = (text: string) => text.replace(/(?![\n\t])[\p{Cc}\p{Bidi_Control}]/gu, "\ufffd");

/**
 * Creates an element. `selector` is a name with or without a class, such as `p.quiet`. The children can be nodes, texts
 * (never HTML), and maps of attributes. In such a map, a function is an event listener, and true gives an attribute
 * without a value.
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

/** Returns a time in the format of Kubernetes, such as 2026-11-27T14:05:09Z. */
export const formatTime = (at: number): string => new Date(at).toISOString().replace(/\.\d+/, "");

/** Returns the time of the day, such as 14:05:09Z. */
export const formatTimeOfDay = (at: number): string => formatTime(at).slice(11);

/** Sends a request to the console's server. Throws an error with the server's sentence if the request fails. */
export const ask = async <Answer>(path: string, question?: object): Promise<Answer> => {
  const body = question && JSON.stringify(question);
  const response = await fetch(path, body === undefined ? {} : { method: "POST", body }).catch(() => undefined);
  if (response?.ok) return response.json();
  throw new Error(
    (await response?.text()) ?? "The gateway doesn't answer. Start it again by postern serve, then do this again.",
  );
};

/**
 * Returns an element that shows "Loading…", then the server's answer or the sentence of its error. If the user has left
 * the page before, `show` isn't called.
 */
export const showLater = <Answer>(answer: Promise<Answer>, show: (answer: Answer) => Node): HTMLElement => {
  const container = create("div", create("p.quiet", "Loading…"));
  answer
    .then((content) => (container.isConnected ? show(content) : ""))
    .catch((error: Error) => create("p.failure", { role: "alert" }, error.message))
    .then((content) => container.replaceChildren(content));
  return container;
};

/** Returns the sentence for a filter without results. `what` is the noun for the filtered things, such as "review". */
export const describeNoMatch = (what: string, words: string): string =>
  `No ${what} has all words of “${words.trim()}”. Delete words to see more.`;

/** Creates a coloured label. The class for the colour is the first matching word of the verdict, such as "denied". */
export const createBadge = (verdict: string) =>
  create(`span.badge ${/would|denied|changed|failed|undecided/.exec(verdict)?.[0] ?? ""}`, verdict);

/** Returns a section with a title; false if there is no content. */
export const createSection = (title: string, ...content: readonly Child[]) =>
  content.some(Boolean) && create("section", create("h2", title), ...content);

/** Returns attributes with which the keyboard can scroll an element. */
const scrollable = (label: string) => ({ tabindex: 0, role: "group", "aria-label": label });
export const createCode = (text: string, label: string) => create("pre", scrollable(label), create("code", text));

export const createTable = (heads: readonly Child[], rows: readonly (readonly Child[])[]) => {
  const createRow = (cells: readonly Child[]) => create("tr", ...cells.map((cell) => create("td", cell)));
  const head = create("tr", ...heads.map((title) => create("th", { scope: "col" }, title)));
  const body = create("tbody", ...rows.map(createRow));
  return create("div.wide", scrollable("Table"), create("table", create("thead", head), body));
};

/** Returns a list of names, each with its text; false if there are no names. */
export const createDefinitions = (entries: Record<string, string>) => {
  const pairs = Object.entries(entries);
  const toNodes = ([name, text]: [string, string]) => [create("dt", name), create("dd", create("code", text))];
  return pairs.length > 0 && create("dl", ...pairs.flatMap(toNodes));
};
