/** A CUE script in two parts: its import declarations, and all that follows them. */
export interface SplitCueScript {
  imports: string;
  declarations: string;
}

/**
 * Splits a CUE script into imports and declarations, and drops its `package` clause. Callers put the declarations in
 * braces: it throws if a bracket in the script would close these braces. It also throws if the script imports a package
 * of tools, such as `tool/exec`.
 */
export const splitCueScript = (source: string): SplitCueScript => {
  // CUE accepts a byte order mark at the start of a file, and nowhere else.
  const script = source.replace(/^\uFEFF/, "");
  // listTokens throws if a bracket of the script is not closed, or closes nothing.
  const tokens = listTokens(script);
  const isName = (token: ScriptToken | undefined) => token?.kind === "word" && namePattern.test(token.text);
  /** The index of the current token. */
  let at = 0;
  /** The parts of the script that are left out of the declarations. */
  const cuts: [start: number, end: number][] = [];
  const skipAttributesAndCommas = () => {
    while (tokens[at]?.kind === "attribute" || tokens[at]?.text === ",") at++;
  };
  const requireSeparator = (from: ScriptToken | undefined, to: ScriptToken | undefined) => {
    if (from && to && from.text !== "," && to.text !== "," && !script.slice(from.end, to.start).includes("\n"))
      throw new Error(`a comma or a new line must stand between ${from.text} and ${to.text}`);
  };
  /** Cuts out the tokens from the current one to the one with the index `last`. */
  const cut = (last: number) => {
    const [start, end] = [tokens[at]?.start ?? 0, tokens[last]?.end ?? script.length];
    const next = tokens[last + 1];
    // CUE doesn't see what is cut out, so it can't report that a separator before or after it is missing.
    requireSeparator(tokens[at - 1], tokens[at]);
    requireSeparator(tokens[last], next);
    const between = script.slice(end, next?.start);
    // A comma after the tokens is cut out, too. CUE's syntax allows no comma between a comment and the next token, so
    // such a comma stays, and CUE reports the error.
    at = next?.text === "," && !between.includes("//") ? last + 2 : last + 1;
    cuts.push([start, tokens[at - 1]?.end ?? end]);
    skipAttributesAndCommas();
  };
  skipAttributesAndCommas();
  if (tokens[at]?.text === "package") {
    if (!isName(tokens[at + 1])) throw new Error("package must be followed by a name");
    cut(at + 1);
  }
  const imports: string[] = [];
  while (tokens[at]?.text === "import") {
    const first = tokens[at + 1];
    let last = at + (isName(first) ? 2 : 1);
    if (first?.text === "(") while (last < tokens.length && tokens[last]?.text !== ")") last++;
    const found = tokens.slice(at, last + 1);
    const paths = found.filter(({ kind }) => kind === "string");
    if (paths.length === 0 && first?.text !== "(") throw new Error("import must be followed by a path");
    for (const { text } of paths) checkImport(text);
    imports.push(script.slice(found[0]?.start, found.at(-1)?.end));
    cut(last);
  }

  let declarations = "";
  let lastEnd = 0;
  for (const [start, end] of cuts) {
    declarations += script.slice(lastEnd, start);
    lastEnd = end;
  }
  return { imports: imports.join("\n"), declarations: declarations + script.slice(lastEnd) };
};

const checkImport = (path: string): void => {
  if (path.includes("\\")) throw new Error(`the import ${path} must be written without escapes`);
  // The path has its quotes: "tool/exec", "tool:t" and #"tool"# are packages of tools, "toolbox" is not.
  if (/^[#"']*tool(?![^/:"'#])/.test(path)) throw new Error(`${path} can't be imported: scripts can't use tools`);
};

interface ScriptToken {
  kind: "word" | "string" | "attribute" | "other";
  text: string;
  start: number;
  end: number;
}

const tokenPatterns = {
  blank: /(?:\s|\uFEFF|\/\/[^\n]*)+/y,
  quote: /(#*)("""|'''|"|')/y,
  attribute: /@[\p{L}\d_$]*(?=\()/uy,
  word: /[\p{L}\d_$#]+/uy,
};
const namePattern = /^(?:_?#)?[\p{L}_$][\p{L}\p{Nd}_$]*$/u;
const closingBrackets: Record<string, string> = { "(": ")", "[": "]", "{": "}" };

/** A bracket whose closing bracket wasn't found yet. */
interface OpenBracket {
  text: string;
  /** The bracket that closes it. */
  closes: string;
  /** The text in which the bracket begins an interpolation, as in `"\(a)"`. */
  string?: OpenQuote;
  /** The start of the attribute to which the bracket belongs, as in `@tag(a)`. */
  attribute?: number;
}

/** A text whose closing quote wasn't found yet. `hashes` are the # signs before its quote, as in `##"a"##`. */
interface OpenQuote {
  hashes: string;
  quote: string;
  start: number;
}

/**
 * Returns the tokens of a CUE script that are outside of brackets or in the brackets of an import. It doesn't recurse,
 * so brackets may be nested to any depth.
 */
const listTokens = (script: string): ScriptToken[] => {
  const tokens: ScriptToken[] = [];
  const open: OpenBracket[] = [];
  let at = 0;
  const match = (pattern: RegExp): RegExpExecArray | null => {
    pattern.lastIndex = at;
    return pattern.exec(script);
  };
  const isOutside = () => open.length === 0 || (open.length === 1 && open[0]?.text === "import");
  const add = (kind: ScriptToken["kind"], start: number) => {
    if (isOutside()) tokens.push({ kind, text: script.slice(start, at), start, end: at });
  };

  const skipString = (string: OpenQuote) => {
    const { hashes, quote, start } = string;
    const end = quote + hashes;
    const escaping = `\\${hashes}`;
    for (; at < script.length; at++) {
      if (script.startsWith(end, at)) {
        at += end.length;
        return add("string", start);
      }
      if (script.startsWith(escaping, at)) {
        at += escaping.length;
        if (script[at] === "(") {
          at++;
          return open.push({ text: "(", closes: ")", string });
        }
      } else if (script[at] === "\n" && quote.length === 1) break;
    }
    throw new Error(`the text that begins in line ${countLine(script, start)} has no end`);
  };

  while (at < script.length) {
    const start = at;
    const blank = match(tokenPatterns.blank);
    if (blank) {
      at += blank[0].length;
      continue;
    }
    const quote = match(tokenPatterns.quote);
    if (quote) {
      at += quote[0].length;
      skipString({ hashes: quote[1] ?? "", quote: quote[2] ?? "", start });
      continue;
    }
    const attribute = match(tokenPatterns.attribute);
    const word = attribute ?? match(tokenPatterns.word);
    const sign = script[at] ?? "";
    at += word?.[0].length ?? 1;
    const closes = word ? undefined : closingBrackets[sign];
    if (attribute) {
      // The brackets of a CUE attribute, as in `@tag(data)`, contain no declarations.
      open.push({ text: "@", closes: ")", attribute: start });
      at++;
    } else if (closes !== undefined) {
      const isImport = sign === "(" && tokens.at(-1)?.text === "import";
      add("other", start);
      open.push({ text: isImport ? "import" : sign, closes });
    } else if (!word && /[)\]}]/.test(sign)) {
      const last = open.pop();
      if (last?.closes !== sign) throw new Error(`the "${sign}" in line ${countLine(script, start)} closes nothing`);
      if (last.string) skipString(last.string);
      else if (last.attribute === undefined) add("other", start);
      else add("attribute", last.attribute);
    } else add(word ? "word" : "other", start);
  }
  const last = open.at(-1);
  if (last) throw new Error(`a bracket has no end: "${last.closes}" is missing`);
  return tokens;
};

const countLine = (script: string, at: number) => script.slice(0, at).split("\n").length;
