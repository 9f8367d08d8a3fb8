import { create, createCode, createTable } from "./elements.ts";

/** Shows the Markdown of a rule's README: headings, lists, tables, code, bold texts and links to other hosts. */
export const createMarkdown = (text: string): HTMLElement => {
  // A block is a block of code, a heading, or several lines without an empty line between them.
  const blocks = text.match(/^```[\s\S]*?^```$|^#.*|(?:(?!^```).+\n?)+/gm) ?? [];
  return create("div", ...blocks.flatMap(createBlock));
};

/** Creates the elements of a Markdown block: a heading, code, a table, a list or a paragraph. */
const createBlock = (block: string): Node[] => {
  const lines = block.trimEnd().split("\n");
  const [first = ""] = lines;
  // The page already shows the title of the README.
  if (first.startsWith("# ")) return [];
  if (first.startsWith("#")) return [create("h3", ...createInline(first.replace(/^#+ /, "")))];
  if (first.startsWith("```")) return [createCode(lines.slice(1, -1).join("\n"), "Example")];
  if (first.startsWith("|")) {
    const splitRow = (row: string) => row.replace(/^\|\s*|\s*\|$/g, "").split(/\s*(?<!\\)\|\s*/);
    const [heads = [], , ...rows] = lines.map((row) =>
      splitRow(row).map((cell) => create("span", ...createInline(cell))),
    );
    return [createTable(heads, rows)];
  }
  const listMarker = /^(?:[-*]|\d+\.) /;
  if (!listMarker.test(first)) return [create("p", ...createInline(lines.join(" ")))];
  const items = lines.join("\n").split(/\n(?=(?:[-*]|\d+\.) )/);
  const toItem = (item: string) =>
    create("li", ...createInline(item.replace(listMarker, "").replace(/\s*\n\s*/g, " ")));
  return [create(/^\d/.test(first) ? "ol" : "ul", ...items.map(toItem))];
};

/**
 * Creates code, bold texts and links. A link to a file of the repository becomes a text, because the console doesn't
 * serve the file.
 */
const createInline = (text: string): (Node | string)[] =>
  text.split(/(`[^`]+`|\*\*[^*]+\*\*|\[[^\]]+\]\([^)]+\))/).map((part) => {
    if (/^`.*`$/.test(part)) return create("code", part.slice(1, -1));
    if (/^\*\*.*\*\*$/.test(part)) return create("strong", part.slice(2, -2));
    const [, name = "", target = ""] = /^\[(.+)\]\((.+)\)$/s.exec(part) ?? [];
    if (target.startsWith("https://")) return create("a", { href: target, rel: "noreferrer" }, name);
    return target === "" ? part : name.replaceAll("`", "");
  });
