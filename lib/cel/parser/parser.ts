import { countCodePoints, toDouble, toInt, Uint, type Value } from "../values.ts";
import type { Macro } from "./macros.ts";
import { createCall, createLiteral, type Expression, type Issue, IssueError, listParts } from "./syntax.ts";
import { parseBytes, parseString, readTokens, type Token } from "./tokens.ts";

/**
 * Parses an expression, and replaces its macros. Returns issues if the text is no valid expression. With
 * `hasQuotedNames`, fields can have names in backquotes.
 */
export const parse = (text: string, macros: readonly Macro[], hasQuotedNames = true): Expression | readonly Issue[] => {
  const size = countCodePoints(text);
  if (size > sizeLimit)
    return [
      { offset: nowhere, message: `expression code point size exceeds limit: size: ${size}, limit ${sizeLimit}` },
    ];
  const issues: Issue[] = [];
  const tokens = readTokens(text.toWellFormed(), issues);
  const next = issues[lexicalIssueLimit];
  if (!next) return new Parser(tokens, issues, macros, hasQuotedNames).parse();
  const message = `Syntax error: More than ${lexicalIssueLimit} syntax errors`;
  return [...issues.slice(0, lexicalIssueLimit), { offset: next.offset, message }];
};

const sizeLimit = 100_000;
const depthLimit = 250;
const lexicalIssueLimit = 100;
/** The most parts of an expression. Only macros that use their target twice, such as `optMap`, can exceed it. */
const partLimit = 200_000;
/** The offset of an error that concerns no place in the text. */
const nowhere = -1;

/** The precedence of each binary operator: 1 for relations, 2 for sums, 3 for products. */
const precedences = new Map<string, number>(
  [
    ["<", "<=", ">=", ">", "==", "!=", "in"],
    ["+", "-"],
    ["*", "/", "%"],
  ].flatMap((operators, index) => operators.map((operator) => [operator, index + 1] as const)),
);

/** Words that can't be names of variables or functions, but of fields. Keywords such as `in` can't even be fields. */
export const reservedWords: ReadonlySet<string> = new Set(
  "as break const continue else for function if import let loop package namespace return var void while".split(" "),
);

/** A recursive-descent parser. */
class Parser {
  readonly #macros: ReadonlyMap<string, Macro>;
  readonly #hasQuotedNames: boolean;
  readonly #tokens: readonly Token[];
  #position = 0;
  /** Errors in tokens, and an error that ends the parsing. */
  readonly #syntaxIssues: Issue[];
  /** Errors that don't end the parsing, such as a reserved name. */
  readonly #issues: Issue[] = [];
  /** The current depth of nested grammar rules. Upstream limits the depth of each of these rules. */
  readonly #depths = { expression: 0, relation: 0, calculation: 0 };

  constructor(tokens: readonly Token[], issues: Issue[], macros: readonly Macro[], hasQuotedNames: boolean) {
    this.#hasQuotedNames = hasQuotedNames;
    this.#macros = new Map(macros.map((macro) => [`${macro.name}:${macro.arity}:${macro.isMember}`, macro]));
    this.#tokens = tokens;
    this.#syntaxIssues = issues;
  }

  parse(): Expression | readonly Issue[] {
    const issues = this.#syntaxIssues;
    try {
      const expression = this.#parseExpression();
      this.#expect("end");
      requireLimits(expression);
      if (issues.length + this.#issues.length === 0) return expression;
    } catch (error) {
      if (!(error instanceof IssueError)) throw error;
      issues.push(error);
      if (error.offset === nowhere) return issues;
    }
    return [...issues, ...this.#issues];
  }

  /** Parses `a ? b : c`, or an expression without `?`. */
  #parseExpression(): Expression {
    return this.#nest("expression", () => {
      const condition = this.#parseLogical("||");
      const question = this.#take("?");
      if (!question) return condition;
      const ifTrue = this.#parseLogical("||");
      this.#expect(":");
      return createCall(question.offset, "_?_:_", [condition, ifTrue, this.#parseExpression()]);
    });
  }

  /** Parses operands of `||` or of `&&`. As upstream does, it makes a balanced tree of more than two operands. */
  #parseLogical(operator: "||" | "&&"): Expression {
    const operands = [this.#parseLogicalOperand(operator)];
    const offsets: number[] = [];
    for (let token = this.#take(operator); token; token = this.#take(operator)) {
      operands.push(this.#parseLogicalOperand(operator));
      offsets.push(token.offset);
    }
    const join = (first: number, last: number): Expression => {
      if (first === last) return operands[first] as Expression;
      const middle = (first + last) >> 1;
      return createCall(offsets[middle] as number, `_${operator}_`, [join(first, middle), join(middle + 1, last)]);
    };
    return join(0, offsets.length);
  }

  #parseLogicalOperand(operator: "||" | "&&"): Expression {
    if (operator === "||") return this.#parseLogical("&&");
    return this.#nest("relation", () => this.#nest("calculation", () => this.#parseBinary(1)));
  }

  /** Parses operands of operators whose precedence is at least `minimum`. */
  #parseBinary(minimum: number): Expression {
    let left = this.#parseUnary();
    for (;;) {
      const { kind, offset } = this.#peek();
      const precedence = precedences.get(kind) ?? 0;
      if (precedence < minimum) return left;
      this.#position++;
      const rule = precedence === 1 ? "relation" : "calculation";
      const right = this.#nest(rule, () => this.#parseBinary(precedence + 1));
      left = createCall(offset, kind === "in" ? "@in" : `_${kind}_`, [left, right]);
    }
  }

  #parseUnary(): Expression {
    const { kind, offset } = this.#peek();
    if ((kind !== "!" && kind !== "-") || this.#isNegativeNumber()) return this.#parseMember();
    let count = 0;
    while (this.#take(kind)) count++;
    const operand = this.#parseMember();
    return count % 2 === 0 ? operand : createCall(offset, `${kind}_`, [operand]);
  }

  /** Parses an operand and the selections, calls and indexes that follow it, such as `a.b`, `a.b(c)` and `a[b]`. */
  #parseMember(): Expression {
    let operand = this.#parsePrimary();
    for (;;) {
      const { offset } = this.#peek();
      if (this.#take(".")) operand = this.#parseSelect(operand, offset);
      else if (this.#take("[")) {
        const name = this.#take("?") ? "_[?_]" : "_[_]";
        operand = createCall(offset, name, [operand, this.#parseExpression()]);
        this.#expect("]");
      } else return operand;
    }
  }

  #parseSelect(operand: Expression, offset: number): Expression {
    const isOptional = this.#take("?") !== undefined;
    const name = this.#takeName();
    if (!isOptional && name.kind === "identifier" && this.#peek().kind === "(")
      return this.#parseCall(name.text, operand);
    if (name.kind === "quoted" && !this.#hasQuotedNames) this.#report(name.offset, "unsupported syntax: '`'");
    if (isOptional) return createCall(offset, "_?._", [operand, createLiteral(name.offset, name.text)]);
    return { offset, kind: "select", operand, field: name.text, isTest: false };
  }

  /** Parses the arguments of a call. If the call is a macro, replaces it. */
  #parseCall(name: string, target?: Expression): Expression {
    const { offset } = this.#expect("(");
    const args = this.#parseItems(")", () => this.#parseExpression());
    const macro = this.#macros.get(`${name}:${args.length}:${target !== undefined}`);
    if (!macro) return createCall(offset, name, args, target);
    try {
      return macro.expand(offset, args, target);
    } catch (error) {
      if (!(error instanceof IssueError)) throw error;
      return this.#report(error.offset, error.message);
    }
  }

  #parsePrimary(): Expression {
    const token = this.#peek();
    const { kind, offset } = token;
    if (kind === "identifier" || kind === ".") return this.#parseIdentifier();
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
        const elements = this.#parseItems("]", () => {
          const isOptional = this.#take("?") !== undefined;
          return { value: this.#parseExpression(), isOptional };
        });
        return { offset, kind: "list", elements };
      }
      case "{": {
        const entries = this.#parseItems("}", () => {
          const isOptional = this.#take("?") !== undefined;
          const key = this.#parseExpression();
          this.#expect(":");
          return { key, value: this.#parseExpression(), isOptional };
        });
        return { offset, kind: "map", entries };
      }
      default:
        return this.#parseLiteral(token);
    }
  }

  /** Parses a name, a call of a function, or a message such as `a.b{c: d}`. Each of them may begin with a dot. */
  #parseIdentifier(): Expression {
    const { offset } = this.#peek();
    const dot = this.#take(".")?.text ?? "";
    if (this.#isMessage()) return this.#parseMessage(dot);
    const name = this.#expect("identifier");
    const isCall = this.#peek().kind === "(";
    if (reservedWords.has(name.text)) {
      const placeholder = this.#report(offset, `reserved identifier: ${name.text}`);
      if (isCall) this.#ignoreIssues(() => this.#parseCall(name.text));
      return placeholder;
    }
    if (isCall) return this.#parseCall(dot + name.text);
    return { offset: name.offset, kind: "identifier", name: dot + name.text };
  }

  /** Reports whether a message begins here: names with dots between them, and an opening brace. */
  #isMessage(): boolean {
    let ahead = 0;
    while (this.#peek(ahead).kind === "identifier" && this.#peek(ahead + 1).kind === ".") ahead += 2;
    return this.#peek(ahead).kind === "identifier" && this.#peek(ahead + 1).kind === "{";
  }

  #parseMessage(dot: string): Expression {
    let name = dot + this.#expect("identifier").text;
    while (this.#take(".")) name += `.${this.#expect("identifier").text}`;
    const { offset } = this.#expect("{");
    const start = this.#peek().offset;
    const fields = this.#parseItems("}", () => {
      const isOptional = this.#take("?") !== undefined;
      const field = this.#takeName();
      const colon = this.#expect(":");
      const isRefused = field.kind === "quoted" && !this.#hasQuotedNames;
      if (isRefused) this.#report(start, "unsupported syntax: '`'");
      const parse = () => this.#parseExpression();
      const value = isRefused ? this.#ignoreIssues(parse) : parse();
      return { offset: colon.offset, name: field.text, value, isOptional };
    });
    return { offset, kind: "struct", name, fields };
  }

  #parseLiteral({ kind, text, offset }: Token): Expression {
    const literal = literals.get(kind);
    // A minus in this place must be followed by a number. If it isn't, the error names the token after the minus.
    if (!literal) throw createSyntaxError(kind === "-" ? this.#peek() : { kind, text, offset }, "an expression");
    const [parse, error] = literal;
    const value = parse(text);
    return value === undefined ? this.#report(offset, error) : createLiteral(offset, value);
  }

  /** Parses items with commas between them. Lists and maps, but not arguments, may end with a comma, even `[,]`. */
  #parseItems<Item>(end: ")" | "]" | "}", parseItem: () => Item): Item[] {
    const items: Item[] = [];
    while (!this.#take(end)) {
      const comma = items.length > 0 ? this.#expect(",") : end !== ")" && this.#take(",");
      if (comma && end !== ")" && (items.length === 0 || this.#peek().kind === end)) {
        this.#expect(end);
        break;
      }
      items.push(parseItem());
    }
    return items;
  }

  /** Parses with a rule of the grammar. The depth of nested rules is limited. */
  #nest(rule: "expression" | "relation" | "calculation", parse: () => Expression): Expression {
    if (++this.#depths[rule] > depthLimit)
      throw new IssueError(`expression recursion limit exceeded: ${depthLimit}`, nowhere);
    const expression = parse();
    this.#depths[rule]--;
    return expression;
  }

  /** Adds an error that doesn't end the parsing. Returns an expression that stands for the wrong one. */
  #report(offset: number, message: string): Expression {
    this.#issues.push({ offset, message });
    return createLiteral(offset, null);
  }

  #ignoreIssues(parse: () => Expression): Expression {
    const count = this.#issues.length;
    const expression = parse();
    this.#issues.length = count;
    return expression;
  }

  #isNegativeNumber(): boolean {
    return this.#peek().kind === "-" && ["int", "double"].includes(this.#peek(1).kind);
  }

  #peek(ahead = 0): Token {
    return (this.#tokens[this.#position + ahead] ?? this.#tokens.at(-1)) as Token;
  }

  /** Consumes and returns the next token if it is of this kind; otherwise, returns undefined. */
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
    const quoted = this.#take("quoted");
    return quoted ? { ...quoted, text: quoted.text.slice(1, -1) } : this.#expect("identifier");
  }
}

/** Throws if an expression has too many parts, or if they are nested too deeply. */
const requireLimits = (expression: Expression): void => {
  let count = 0;
  const visit = (part: Expression, outer: number): void => {
    if (++count > partLimit) throw new IssueError("expression is too large with its macros replaced", nowhere);
    const depth = outer + Number(countsAsLevel(part));
    if (depth > depthLimit) throw new IssueError("max recursion depth exceeded", nowhere);
    for (const inner of listParts(part)) visit(inner, depth);
  };
  visit(expression, 0);
};

/** Reports whether upstream's parser counts an expression as a level: selections, methods, loops and most operators. */
const countsAsLevel = (expression: Expression): boolean => {
  const { kind } = expression;
  if (kind !== "call") return kind === "select" || kind === "comprehension";
  // Operators are functions such as `_+_`, `_[_]`, `_?_:_` and `@in`. `_&&_`, `_||_` and unary ones don't count.
  return expression.target !== undefined || /^(?:_(?!&&|\|\|)|@in)/.test(expression.function);
};

/** The names of kinds of tokens in error messages. */
const names: Partial<Record<string, string>> = { end: "the end", identifier: "a name" };

const createSyntaxError = ({ kind, text, offset }: Token, expected: string): IssueError => {
  const found = kind === "end" ? "the end" : `'${text}'`;
  return new IssueError(`Syntax error: found ${found}, expected ${expected}`, offset);
};

const parseInteger = (text: string): Value | undefined => {
  const value = text.startsWith("-") ? -BigInt(text.slice(1)) : BigInt(text);
  return BigInt.asIntN(64, value) === value ? toInt(value) : undefined;
};

const parseUnsigned = (text: string): Value | undefined => {
  const value = BigInt(text.slice(0, -1));
  return BigInt.asUintN(64, value) === value ? new Uint(value) : undefined;
};

const parseDouble = (text: string): Value | undefined =>
  Number.isFinite(Number(text)) ? toDouble(Number(text)) : undefined;

/** For each kind of literal: the function that returns its value, and upstream's error if it returns undefined. */
const literals = new Map<string, readonly [parse: (text: string) => Value | undefined, error: string]>([
  ["true", [() => true, ""]],
  ["false", [() => false, ""]],
  ["null", [() => null, ""]],
  ["int", [parseInteger, "invalid int literal"]],
  ["uint", [parseUnsigned, "invalid uint literal"]],
  ["double", [parseDouble, "invalid double literal"]],
  ["string", [parseString, "invalid unicode code point"]],
  ["bytes", [parseBytes, "unable to unescape string"]],
]);
