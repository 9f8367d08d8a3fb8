import { type Macro, MacroContext, MacroError } from "./macros.ts";
import type { Expression, Issue } from "./syntax.ts";
import { parseBytes, parseString, readTokens, type Token } from "./tokens.ts";
import { countCodePoints, toDouble, toInt, Uint, type Value } from "./values.ts";

/** Parses an expression and replaces its macros. Returns the errors if the text is not an expression. */
export const parse = (text: string, macros: readonly Macro[]): Expression | readonly Issue[] => {
  const size = countCodePoints(text);
  if (size <= sizeLimit) return new Parser(text.toWellFormed(), macros).parse();
  return [{ offset: nowhere, message: `expression code point size exceeds limit: size: ${size}, limit ${sizeLimit}` }];
};

const sizeLimit = 100_000;
const depthLimit = 250;
const lexicalIssueLimit = 100;
/** More than any text of the largest size has, unless macros copy their targets, which `optMap` does. */
const idLimit = 200_000;
/** The offset of an error without a place. */
const nowhere = -1;

const precedences = new Map<string, number>(
  [
    ["<", "<=", ">=", ">", "==", "!=", "in"],
    ["+", "-"],
    ["*", "/", "%"],
  ].flatMap((operators, index) => operators.map((operator) => [operator, index + 1] as const)),
);

/** Words that can't be names of variables and of functions. Keywords aren't names at all. */
const reservedWords = new Set(
  "as break const continue else for function if import let loop package namespace return var void while".split(" "),
);

/** An error after which the rest of the text isn't parsed. */
class ParseError extends Error {
  readonly offset: number;
  constructor(message: string, offset: number) {
    super(message);
    this.offset = offset;
  }
}

/** A recursive-descent parser. It gives ids in the order in which upstream does. */
class Parser {
  readonly #macros: ReadonlyMap<string, Macro>;
  readonly #readToken: () => Token;
  /** Tokens that were read and not yet taken begin at the position. */
  readonly #tokens: Token[] = [];
  #position = 0;
  #lastId = 0;
  readonly #lexicalIssues: Issue[] = [];
  /** Errors in parts of the text that can be parsed, such as a name that is reserved. */
  readonly #issues: Issue[] = [];
  /** How many of upstream's rules the parser is in. Upstream limits each number, and the height of the tree besides. */
  readonly #depths = { expression: 0, relation: 0, calculation: 0 };
  /** The height of the expression that was parsed last, as upstream counts it: without literals, names and some more. */
  #height = 0;
  #isTooHigh = false;

  constructor(text: string, macros: readonly Macro[]) {
    this.#macros = new Map(macros.map((macro) => [`${macro.name}:${macro.arity}:${macro.isMember}`, macro]));
    this.#readToken = readTokens(text, (issue) => {
      if (this.#lexicalIssues.length < lexicalIssueLimit) this.#lexicalIssues.push(issue);
      else {
        this.#issues.length = 0;
        throw new ParseError(`Syntax error: More than ${lexicalIssueLimit} syntax errors`, issue.offset);
      }
    });
  }

  parse(): Expression | readonly Issue[] {
    const issues = this.#lexicalIssues;
    try {
      const expression = this.#parseExpression();
      this.#expect("end");
      if (issues.length + this.#issues.length === 0 && !this.#isTooHigh) return expression;
    } catch (error) {
      if (!(error instanceof ParseError)) throw error;
      issues.push({ offset: error.offset, message: error.message });
      if (error.offset === nowhere) return issues;
    }
    // Upstream finds these errors only after it has read all of the text, and the first alone if there is one.
    if (this.#isTooHigh) return [...issues, { offset: nowhere, message: "max recursion depth exceeded" }];
    return [...issues, ...this.#issues];
  }

  /** Parses `a ? b : c`, or what may stand for `a`. */
  #parseExpression(): Expression {
    return this.#nest("expression", () => {
      const condition = this.#parseLogical("||");
      const question = this.#take("?");
      if (!question) return condition;
      let height = this.#height;
      const id = this.#createId();
      const ifTrue = this.#parseLogical("||");
      height = Math.max(height, this.#height);
      this.#expect(":");
      const ifFalse = this.#parseExpression();
      this.#raise(height);
      return createCall(id, question.offset, "_?_:_", [condition, ifTrue, ifFalse]);
    });
  }

  /** Parses operands of `||` or of `&&`. Upstream makes a balanced tree of more than two. */
  #parseLogical(operator: "||" | "&&"): Expression {
    const operands = [this.#parseLogicalOperand(operator)];
    const operators: { id: number; offset: number }[] = [];
    let height = this.#height;
    for (let token = this.#take(operator); token; token = this.#take(operator)) {
      operands.push(this.#parseLogicalOperand(operator));
      operators.push({ id: this.#createId(), offset: token.offset });
      height = Math.max(height, this.#height);
    }
    this.#height = height;
    const join = (first: number, last: number): Expression => {
      if (first === last) return operands[first] as Expression;
      const middle = (first + last) >> 1;
      const { id, offset } = operators[middle] as (typeof operators)[number];
      return createCall(id, offset, `_${operator}_`, [join(first, middle), join(middle + 1, last)]);
    };
    return join(0, operators.length);
  }

  #parseLogicalOperand(operator: "||" | "&&"): Expression {
    if (operator === "||") return this.#parseLogical("&&");
    return this.#nest("relation", () => this.#nest("calculation", () => this.#parseBinary(1)));
  }

  /** Parses operands of operators that have at least a precedence. */
  #parseBinary(minimum: number): Expression {
    let left = this.#parseUnary();
    for (;;) {
      const { kind, offset } = this.#peek();
      const precedence = precedences.get(kind) ?? 0;
      if (precedence < minimum) return left;
      this.#position++;
      const height = this.#height;
      const id = this.#createId();
      const rule = precedence === 1 ? "relation" : "calculation";
      const right = this.#nest(rule, () => this.#parseBinary(precedence + 1));
      this.#raise(height);
      left = createCall(id, offset, kind === "in" ? "@in" : `_${kind}_`, [left, right]);
    }
  }

  #parseUnary(): Expression {
    const { kind, offset } = this.#peek();
    if ((kind !== "!" && kind !== "-") || this.#isNegativeNumber()) return this.#parseMember();
    let count = 0;
    while (this.#take(kind)) count++;
    if (count % 2 === 0) return this.#parseMember();
    const id = this.#createId();
    return createCall(id, offset, `${kind}_`, [this.#parseMember()]);
  }

  /** Parses an operand with all that is selected from it, such as `a.b`, `a.b(c)` and `a[b]`. */
  #parseMember(): Expression {
    let operand = this.#parsePrimary();
    for (;;) {
      const height = this.#height;
      const { offset } = this.#peek();
      if (this.#take(".")) operand = this.#parseSelect(operand, offset);
      else if (this.#take("[")) {
        const id = this.#createId();
        const name = this.#take("?") ? "_[?_]" : "_[_]";
        const index = this.#parseExpression();
        this.#expect("]");
        operand = createCall(id, offset, name, [operand, index]);
      } else return operand;
      this.#raise(height);
    }
  }

  #parseSelect(operand: Expression, offset: number): Expression {
    const isOptional = this.#take("?") !== undefined;
    const name = this.#takeName();
    if (!isOptional && name.kind === "identifier" && this.#peek().kind === "(")
      return this.#parseCall(name.text, operand);
    this.#height = 0;
    if (name.kind === "quoted") this.#report(name.offset, "unsupported syntax: '`'");
    if (!isOptional) return { id: this.#createId(), offset, kind: "select", operand, field: name.text, isTest: false };
    const field = this.#createLiteral(name.offset, name.text);
    return createCall(this.#createId(), offset, "_?._", [operand, field]);
  }

  /** Parses the arguments of a call, and replaces the call if it is a macro's. */
  #parseCall(name: string, target?: Expression): Expression {
    const { offset } = this.#expect("(");
    const id = this.#createId();
    const args = this.#parseItems(")", () => this.#parseExpression());
    const macro = this.#macros.get(`${name}:${args.length}:${target !== undefined}`);
    if (!macro) return { id, offset, kind: "call", function: name, target, arguments: args };
    if (this.#isTooHigh) return this.#createLiteral(offset, null);
    try {
      return macro.expand(new MacroContext(offset, () => this.#createId()), target, args);
    } catch (error) {
      if (!(error instanceof MacroError)) throw error;
      return this.#report(error.offset, error.message);
    }
  }

  #parsePrimary(): Expression {
    const token = this.#peek();
    const { kind, offset } = token;
    if (kind === "identifier" || kind === ".") return this.#parseIdentifier();
    this.#height = 0;
    const isNegative = this.#isNegativeNumber();
    this.#position++;
    if (isNegative) {
      const number = this.#peek();
      this.#position++;
      return this.#parseLiteral({ kind: number.kind, text: `-${number.text}`, offset });
    }
    switch (kind) {
      case "(": {
        const expression = this.#parseExpression();
        this.#expect(")");
        return expression;
      }
      case "[": {
        const id = this.#createId();
        const elements = this.#parseItems("]", () => {
          const isOptional = this.#take("?") !== undefined;
          return { value: this.#parseExpression(), isOptional };
        });
        return { id, offset, kind: "list", elements };
      }
      case "{": {
        const id = this.#createId();
        return { id, offset, kind: "map", entries: this.#parseItems("}", () => this.#parseEntry()) };
      }
      default:
        return this.#parseLiteral(token);
    }
  }

  #parseEntry() {
    const id = this.#createId();
    const isOptional = this.#take("?") !== undefined;
    const key = this.#parseExpression();
    const height = this.#height;
    this.#expect(":");
    const value = this.#parseExpression();
    this.#height = Math.max(height, this.#height);
    return { id, key, value, isOptional };
  }

  /** Parses a name, a call of a function or a message such as `a.b{c: d}`. All may begin with a dot. */
  #parseIdentifier(): Expression {
    const { offset } = this.#peek();
    const dot = this.#take(".")?.text ?? "";
    if (this.#isMessage()) return this.#parseMessage(dot);
    const name = this.#expect("identifier");
    const isCall = this.#peek().kind === "(";
    this.#height = 0;
    if (reservedWords.has(name.text)) {
      const placeholder = this.#report(offset, `reserved identifier: ${name.text}`);
      if (isCall) this.#ignoreIssues(() => this.#parseCall(name.text));
      return placeholder;
    }
    if (isCall) return this.#parseCall(dot + name.text);
    return { id: this.#createId(), offset: name.offset, kind: "identifier", name: dot + name.text };
  }

  /** Reports whether the next tokens are names with dots between them, and a brace. */
  #isMessage(): boolean {
    let ahead = 0;
    while (this.#peek(ahead).kind === "identifier" && this.#peek(ahead + 1).kind === ".") ahead += 2;
    return this.#peek(ahead).kind === "identifier" && this.#peek(ahead + 1).kind === "{";
  }

  #parseMessage(dot: string): Expression {
    let name = dot + this.#expect("identifier").text;
    while (this.#take(".")) name += `.${this.#expect("identifier").text}`;
    const { offset } = this.#expect("{");
    const id = this.#createId();
    const start = this.#peek().offset;
    const fields = this.#parseItems("}", () => {
      const isOptional = this.#take("?") !== undefined;
      const field = this.#takeName();
      const colon = this.#expect(":");
      const place = { id: this.#createId(), offset: colon.offset };
      if (field.kind === "identifier")
        return { ...place, name: field.text, value: this.#parseExpression(), isOptional };
      const value = this.#report(start, "unsupported syntax: '`'");
      this.#ignoreIssues(() => this.#parseExpression());
      return { ...place, name: field.text, value, isOptional };
    });
    return { id, offset, kind: "struct", name, fields };
  }

  #parseLiteral({ kind, text, offset }: Token): Expression {
    const literal = literals.get(kind);
    // After a minus only a number can follow here, so what is wrong is the next token.
    if (!literal) throw createSyntaxError(kind === "-" ? this.#peek() : { kind, text, offset }, "an expression");
    const value = literal.parse(text);
    return value === undefined ? this.#report(offset, literal.error) : this.#createLiteral(offset, value);
  }

  /** Parses items with commas between them. Except in a list of arguments, a comma may come last, even alone. */
  #parseItems<Item>(end: ")" | "]" | "}", parseItem: () => Item): Item[] {
    const items: Item[] = [];
    let height = 0;
    while (!this.#take(end)) {
      const comma = items.length > 0 ? this.#expect(",") : end !== ")" && this.#take(",");
      if (comma && end !== ")" && (items.length === 0 || this.#peek().kind === end)) {
        this.#expect(end);
        break;
      }
      items.push(parseItem());
      height = Math.max(height, this.#height);
    }
    this.#height = height;
    return items;
  }

  #createLiteral(offset: number, value: Value): Expression {
    return { id: this.#createId(), offset, kind: "literal", value };
  }

  #createId(): number {
    if (this.#lastId === idLimit) throw new ParseError("expression is too large with its macros replaced", nowhere);
    return ++this.#lastId;
  }

  /** Parses within a rule, of which there may be only so many within each other. */
  #nest(rule: "expression" | "relation" | "calculation", parse: () => Expression): Expression {
    if (++this.#depths[rule] > depthLimit)
      throw new ParseError(`expression recursion limit exceeded: ${depthLimit}`, nowhere);
    const expression = parse();
    this.#depths[rule]--;
    return expression;
  }

  /** Sets the height of an expression to more than that of its part that was parsed last, and of its other parts. */
  #raise(height: number): void {
    this.#height = Math.max(height, this.#height) + 1;
    this.#isTooHigh ||= this.#height > depthLimit;
  }

  /** Adds an error that leaves the rest of the text as it is, and returns what stands for the broken expression. */
  #report(offset: number, message: string): Expression {
    this.#issues.push({ offset, message });
    return this.#createLiteral(offset, null);
  }

  #ignoreIssues(parse: () => Expression): void {
    const count = this.#issues.length;
    parse();
    this.#issues.length = count;
  }

  #isNegativeNumber(): boolean {
    return this.#peek().kind === "-" && ["int", "double"].includes(this.#peek(1).kind);
  }

  #peek(ahead = 0): Token {
    while (this.#tokens.length <= this.#position + ahead) this.#tokens.push(this.#readToken());
    return this.#tokens[this.#position + ahead] as Token;
  }

  /** Returns the next token if it is of a kind. */
  #take(kind: string): Token | undefined {
    const token = this.#peek();
    if (token.kind !== kind) return undefined;
    this.#position++;
    return token;
  }

  #expect(kind: string): Token {
    const token = this.#take(kind);
    if (token) return token;
    throw createSyntaxError(this.#peek(), names[kind] ?? `'${kind}'`);
  }

  #takeName(): Token {
    return this.#take("quoted") ?? this.#expect("identifier");
  }
}

const createCall = (id: number, offset: number, name: string, args: readonly Expression[]): Expression => ({
  id,
  offset,
  kind: "call",
  function: name,
  target: undefined,
  arguments: args,
});

const names: Partial<Record<string, string>> = { end: "the end", identifier: "a name" };

const createSyntaxError = ({ kind, text, offset }: Token, expected: string): ParseError => {
  const found = kind === "end" ? "the end" : `'${text}'`;
  return new ParseError(`Syntax error: found ${found}, expected ${expected}`, offset);
};

const toInteger = (text: string): bigint => (text.startsWith("-") ? -BigInt(text.slice(1)) : BigInt(text));

/** How literals are parsed by their kinds, and upstream's error if one has no value. */
const literals = new Map<string, { parse: (text: string) => Value | undefined; error: string }>([
  ["true", { parse: () => true, error: "" }],
  ["false", { parse: () => false, error: "" }],
  ["null", { parse: () => null, error: "" }],
  [
    "int",
    {
      parse(text) {
        const value = toInteger(text);
        return BigInt.asIntN(64, value) === value ? toInt(value) : undefined;
      },
      error: "invalid int literal",
    },
  ],
  [
    "uint",
    {
      parse(text) {
        const value = toInteger(text.slice(0, -1));
        return BigInt.asUintN(64, value) === value ? new Uint(value) : undefined;
      },
      error: "invalid uint literal",
    },
  ],
  [
    "double",
    {
      parse: (text) => (Number.isFinite(Number(text)) ? toDouble(Number(text)) : undefined),
      error: "invalid double literal",
    },
  ],
  ["string", { parse: parseString, error: "invalid unicode code point" }],
  ["bytes", { parse: parseBytes, error: "unable to unescape string" }],
]);
