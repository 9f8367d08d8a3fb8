// Evaluates queries of CloudWatch Logs Insights. It knows exactly the part of the language that Postern and its pages
// use, and throws for any other query.

/** An event of a log group. */
export interface LogEvent {
  /** Milliseconds since 1970. */
  time: number;
  line: string;
  stream: string;
}

type Value = string | number | boolean;
type Fields = Map<string, Value>;
type Expression = (fields: Fields) => Value | undefined;
type Command = (rows: Fields[]) => Fields[];

/** Returns the rows of a query as GetQueryResults does: the displayed fields that have a value, as strings. */
export const evaluateQuery = (query: string, events: LogEvent[]): Record<string, string>[] => {
  const tokens = tokenize(query);
  const parser = createParser(tokens);
  const commands: Command[] = [];
  let displayed: string[] | undefined;
  do {
    const { command, display } = parseCommand(parser);
    commands.push(command);
    displayed = display ?? displayed;
  } while (parser.takeIf("|"));
  if (tokens.length > 0) throw parser.refuse();
  const resultRows = commands.reduce((rows, command) => command(rows), events.map(discoverFields));
  return resultRows.map((fields) => {
    const names = displayed ?? ["@timestamp", "@message"];
    return Object.fromEntries(
      names.flatMap((name) => (fields.has(name) ? [[name, String(fields.get(name))] as const] : [])),
    );
  });
};

/** Returns the fields that Insights discovers in an event. A member of a JSON line gets a name such as `user.name`. */
const discoverFields = ({ time, line, stream }: LogEvent): Fields => {
  const fields: Fields = new Map<string, Value>([
    ["@timestamp", new Date(time).toISOString().replace("T", " ").replace("Z", "")],
    ["@message", line],
    ["@logStream", stream],
  ]);
  const addFields = (value: unknown, name: string) => {
    if (typeof value === "object" && value !== null)
      for (const [key, member] of Object.entries(value)) addFields(member, name === "" ? key : `${name}.${key}`);
    else if (typeof value === "string" || typeof value === "number" || typeof value === "boolean")
      fields.set(name, value);
  };
  if (line.startsWith("{")) addFields(JSON.parse(line), "");
  return fields;
};

/** Returns the time of an event in milliseconds since 1970. Aggregates of `@timestamp` are such numbers. */
const readTime = (fields: Fields): number => Date.parse(`${fields.get("@timestamp")}Z`);

/** Matches a token: a regular expression, a string in quotes, a number, a name, or a sign. */
const tokenForm =
  /\s*(?:(\/(?:[^/\\]|\\.)+\/)|("[^"]*")|(\d+(?:\.\d+)?)|(@?[A-Za-z_][\w.]*)|(!=|<=|>=|[=<>(),|*[\]-]))/y;

/** Splits a query into tokens. A slash begins a regular expression: the evaluator knows no division. */
const tokenize = (query: string): string[] => {
  const tokens: string[] = [];
  const text = query.trim();
  tokenForm.lastIndex = 0;
  while (tokenForm.lastIndex < text.length) {
    const start = tokenForm.lastIndex;
    const match = tokenForm.exec(text);
    if (match === null) throw new Error(`unexpected text in the query: ${text.slice(start)}`);
    tokens.push(match[0].trim());
  }
  return tokens;
};

type Parser = ReturnType<typeof createParser>;

/** Returns functions that take tokens from the beginning of a query. They throw if the next token is of another kind. */
const createParser = (tokens: string[]) => {
  const refuse = (what = "nothing") => new Error(`the query has ${tokens[0] ?? "its end"} in the place of ${what}`);
  const takeIf = (token: string): boolean => {
    if (tokens[0]?.toLowerCase() !== token) return false;
    tokens.shift();
    return true;
  };
  const take = (form: RegExp, what: string): string => {
    if (!form.test(tokens[0] ?? "")) throw refuse(what);
    return tokens.shift() ?? "";
  };
  return {
    refuse,
    takeIf,
    take,
    expect: (token: string) => {
      if (!takeIf(token)) throw refuse(token);
    },
    takeField: () => take(/^@?[A-Za-z_]/, "a field"),
    takeNumber: () => Number(take(/^\d/, "a number")),
    takeList: <T>(takeItem: () => T): T[] => {
      const items = [takeItem()];
      while (takeIf(",")) items.push(takeItem());
      return items;
    },
  };
};

/** Parses a command into a function on rows; `display` has the fields that the command displays. */
const parseCommand = (parser: Parser): { command: Command; display?: string[] } => {
  if (parser.takeIf("filter")) {
    const condition = parseOr(parser);
    return { command: (rows) => rows.filter((fields) => condition(fields) === true) };
  }
  if (parser.takeIf("fields")) return parseFields(parser);
  if (parser.takeIf("stats")) return parseStats(parser);
  if (parser.takeIf("parse")) return { command: parseExtraction(parser) };
  if (parser.takeIf("sort")) {
    const name = parser.takeField();
    const sign = parser.takeIf("desc") ? -1 : 1;
    parser.takeIf("asc");
    const order = (left: Fields, right: Fields) => sign * compare(left.get(name) ?? "", right.get(name) ?? "");
    return { command: (rows) => rows.toSorted(order) };
  }
  if (parser.takeIf("limit")) {
    const count = parser.takeNumber();
    return { command: (rows) => rows.slice(0, count) };
  }
  throw parser.refuse("a command that the stand-in knows");
};

/** Parses `fields NAME, LEFT - RIGHT as NAME`. */
const parseFields = (parser: Parser) => {
  const columns = parser.takeList(() => {
    const name = parser.takeField();
    if (!parser.takeIf("-")) return { name };
    const right = parser.takeField();
    parser.expect("as");
    const subtract: Expression = (fields) => {
      const [from, by] = [fields.get(name), fields.get(right)];
      return typeof from === "number" && typeof by === "number" ? from - by : undefined;
    };
    return { name: parser.takeField(), compute: subtract };
  });
  const command: Command = (rows) =>
    rows.map((fields) => {
      const extended = new Map(fields);
      for (const { name, compute } of columns) {
        const value = compute?.(fields);
        if (value !== undefined) extended.set(name, value);
      }
      return extended;
    });
  return { command, display: columns.map(({ name }) => name) };
};

/** Parses `parse FIELD /…(?<name>…)…/`, which adds the named groups as fields. */
const parseExtraction = (parser: Parser): Command => {
  const field = parser.takeField();
  const form = new RegExp(parser.take(/^\/.*\(\?<\w+>/, "a regular expression with named groups").slice(1, -1));
  return (rows) =>
    rows.map((fields) => {
      const found = form.exec(String(fields.get(field) ?? ""))?.groups ?? {};
      return new Map([...fields, ...Object.entries(found)]);
    });
};

const aggregates: Record<string, (values: number[], percent: number) => number> = {
  sum: (values) => values.reduce((sum, value) => sum + value, 0),
  max: (values) => Math.max(...values),
  pct: (values, percent) =>
    values.toSorted((left, right) => left - right)[Math.max(0, Math.ceil((percent / 100) * values.length) - 1)] ?? 0,
};

/** Parses `stats count(*) as NAME, pct(FIELD, 99) as NAME by FIELD`. */
const parseStats = (parser: Parser) => {
  const columns = parser.takeList(() => {
    const kind = parser.take(/^(count|sum|max|pct|latest)$/, "an aggregate that the stand-in knows");
    parser.expect("(");
    const field = kind === "count" ? parser.take(/^\*$/, "*") : parser.takeField();
    if (kind === "pct") parser.expect(",");
    const percent = kind === "pct" ? parser.takeNumber() : 0;
    parser.expect(")");
    parser.expect("as");
    return { kind, field, percent, name: parser.takeField() };
  });
  const groups = parser.takeIf("by") ? parser.takeList(parser.takeField) : [];
  const command: Command = (rows) =>
    [...Map.groupBy(rows, (fields) => JSON.stringify(groups.map((name) => fields.get(name)))).values()].map((group) => {
      const row: Fields = new Map();
      for (const name of groups) {
        const value = group[0]?.get(name);
        if (value !== undefined) row.set(name, value);
      }
      for (const { kind, field, percent, name } of columns) {
        const values = group.flatMap(
          (fields) => toNumber(field === "@timestamp" ? readTime(fields) : fields.get(field)) ?? [],
        );
        const latest = group.toSorted((left, right) => readTime(right) - readTime(left)).find((row) => row.has(field));
        if (kind === "count") row.set(name, group.length);
        else if (kind === "latest") {
          if (latest) row.set(name, latest.get(field) ?? "");
        } else if (values.length > 0) row.set(name, aggregates[kind]?.(values, percent) ?? 0);
      }
      return row;
    });
  return { command, display: [...groups, ...columns.map(({ name }) => name)] };
};

const parseOr = (parser: Parser): Expression => {
  const parts = [parseAnd(parser)];
  while (parser.takeIf("or")) parts.push(parseAnd(parser));
  return (fields) => parts.some((part) => part(fields) === true);
};

const parseAnd = (parser: Parser): Expression => {
  const parts = [parseComparison(parser)];
  while (parser.takeIf("and")) parts.push(parseComparison(parser));
  return (fields) => parts.every((part) => part(fields) === true);
};

/** Parses a comparison such as `a = 1`, `a like /b/` or `a in ["b"]`, its negation, or a condition in brackets. */
const parseComparison = (parser: Parser): Expression => {
  if (parser.takeIf("not")) {
    const inner = parseComparison(parser);
    return (fields) => inner(fields) !== true;
  }
  if (parser.takeIf("(")) {
    const inner = parseOr(parser);
    parser.expect(")");
    return inner;
  }
  if (parser.takeIf("ispresent")) {
    parser.expect("(");
    const name = parser.takeField();
    parser.expect(")");
    return (fields) => fields.has(name);
  }
  const name = parser.takeField();
  const isNegated = parser.takeIf("not");
  if (isNegated || parser.takeIf("like")) {
    if (isNegated) parser.expect("like");
    const form = new RegExp(parser.take(/^\//, "a regular expression").slice(1, -1));
    return (fields) => form.test(String(fields.get(name) ?? "")) !== isNegated;
  }
  if (parser.takeIf("in")) {
    parser.expect("[");
    const strings = parser.takeList(() => parser.take(/^"/, "a string").slice(1, -1));
    parser.expect("]");
    return (fields) => strings.includes(String(fields.get(name)));
  }
  const operator = parser.take(/^[=<>]$/, "an operator that the stand-in knows");
  const text = parser.take(/^["\d]/, "a value");
  const wanted = text.startsWith('"') ? text.slice(1, -1) : Number(text);
  return (fields) => {
    const value = fields.get(name);
    if (value === undefined) return false;
    const order = compare(value, wanted);
    return { "=": order === 0, "<": order < 0, ">": order > 0 }[operator];
  };
};

/** Returns the number that a field has, as a number or as a string. */
const toNumber = (value: Value | undefined): number | undefined =>
  value === undefined || value === "" || Number.isNaN(Number(value)) ? undefined : Number(value);

/** Compares two values as numbers if possible, otherwise as strings; the result is for `sort`. */
const compare = (left: Value, right: Value): number => {
  const [first, second] = [toNumber(left), toNumber(right)];
  if (first !== undefined && second !== undefined) return first - second;
  if (String(left) === String(right)) return 0;
  return String(left) < String(right) ? -1 : 1;
};
