import { exactJson } from "#lib/exact-json.ts";
import { isMap } from "#lib/json.ts";
import type { KubernetesObject } from "#lib/review.ts";
import olderTypes from "../defaults/older-types.json" with { type: "json" };
import newestTypes from "../defaults/types.json" with { type: "json" };
import { selectMinor } from "../minors.ts";
import newestRules from "./fields.json" with { type: "json" };
import { textFormats } from "./formats.ts";
import olderRules from "./older-fields.json" with { type: "json" };

/** What an API server requires of a field, learned from its refusals. In a kind, false means that it doesn't require it. */
export interface FieldRule {
  /** What the API server says of an absent value and of Go's zero value. */
  required?: string | false;
  /** What it says of any other value, unless a member of the same struct has the value in `unless`. */
  forbidden?: string | false;
  unless?: [member: string, value: string];
  enum?: string[] | false;
  /** The least valid number, and what the API server says of smaller ones. */
  min?: [number, string] | false;
  max?: [number, string] | false;
  /** The name of a format of `textFormats`. */
  format?: string | false;
  /** The format of a map's keys. */
  keys?: string | false;
  /** True if the API server names the list or map instead of its element. */
  isNamedAbove?: boolean;
}

/**
 * The rules of built-in kinds. `types`: those that a field has wherever its type is used, by the words of types.json;
 * `kinds`: those of one kind, by the paths of fields. `[]` stands for an element of a list, `{}` for one of a map.
 */
export interface FieldRules {
  types: Record<string, Record<string, FieldRule>>;
  kinds: Record<string, Record<string, FieldRule>>;
}

/** Something that an API server refuses, in its own words. */
export interface FieldFault {
  field: string;
  reason: string;
  message: string;
}

/** Where a value stands: the member of its struct, and the path of the field in a kind. */
export interface FieldPlace {
  readonly type: string;
  readonly member: string;
  readonly path: string;
}

/** A fault with the part of a rule that the value doesn't follow. */
export interface FieldRuleFault extends FieldFault {
  place: FieldPlace;
  part: keyof FieldRule;
}

interface Tables {
  readonly kubernetes: string | undefined;
  readonly types: Record<string, Record<string, string>>;
  findRule(place: FieldPlace): FieldRule | undefined;
}

type Fields = Readonly<Record<string, unknown>>;

/** Checks the values of one type in one place. */
class FieldValidator {
  readonly #word: string;
  readonly #isPointer: boolean;
  readonly #place: FieldPlace;
  readonly #tables: Tables;
  readonly #rule: FieldRule | undefined;
  readonly #inner = new Map<string, FieldValidator | undefined>();
  #required: readonly string[] | undefined;

  constructor(word: string, place: FieldPlace, tables: Tables) {
    this.#isPointer = word.startsWith("*");
    this.#word = word.replace("*", "");
    this.#place = place;
    this.#tables = tables;
    this.#rule = tables.findRule(place);
  }

  get isRequired(): boolean {
    return Boolean(this.#rule?.required);
  }

  /** Reports whether no value has a fault: most members of structs are scalars without a rule. */
  get isIdle(): boolean {
    const element = this.#word.replace(/^[[{]/, "");
    if (this.#rule !== undefined || Object.hasOwn(this.#tables.types, element) || /^[[{*]/.test(element)) return false;
    return element === this.#word || this.#find(this.#word.startsWith("[") ? "[]" : "{}", element) === undefined;
  }

  /** Adds the faults of a value at `field`, of which `above` is the list or map, and `siblings` is the struct. */
  validate(value: unknown, field: string, above: string, siblings: Fields, faults: FieldRuleFault[]): void {
    const rule = this.#rule;
    const isMissing = isAbsent(value) || (!this.#isPointer && isZero(value));
    if (isMissing && rule?.required) {
      this.#add(faults, field, "required", rule.required);
      return;
    }
    const isForbidden = !isMissing && (!rule?.unless || siblings[rule.unless[0]] !== rule.unless[1]);
    if (isForbidden && rule?.forbidden) {
      this.#add(faults, field, "forbidden", rule.forbidden);
      return;
    }
    this.#validateInner(value, field, faults);
    if (isMissing || rule === undefined) return;
    this.#validateScalar(value, rule.isNamedAbove ? above : field, rule, faults);
  }

  #validateInner(value: unknown, field: string, faults: FieldRuleFault[]): void {
    const word = this.#word;
    const [first, rest] = [word[0], word.slice(1)];
    if (first === "[" && Array.isArray(value)) {
      const element = this.#find("[]", rest);
      if (element === undefined) return;
      for (const [index, item] of value.entries()) element.validate(item, `${field}[${index}]`, field, {}, faults);
    } else if (first === "{" && isMap(value)) {
      const element = this.#find("{}", rest);
      const rule = this.#rule;
      if (element === undefined && !rule?.keys) return;
      for (const [key, item] of Object.entries(value)) {
        const at = `${field}[${key}]`;
        if (rule?.keys) this.#addFormatFaults(faults, rule.isNamedAbove ? field : at, "keys", rule.keys, key);
        element?.validate(item, at, field, {}, faults);
      }
    } else if (Object.hasOwn(this.#tables.types, word) && !(this.#isPointer && isAbsent(value)))
      this.#validateMembers(isMap(value) ? value : {}, field, faults);
  }

  #validateScalar(value: unknown, field: string, rule: FieldRule, faults: FieldRuleFault[]): void {
    if (typeof value === "string" && value !== "") {
      if (rule.format) this.#addFormatFaults(faults, field, "format", rule.format, value);
      if (rule.enum && !rule.enum.includes(value)) {
        const supported = rule.enum.map((one) => JSON.stringify(one)).join(", ");
        this.#add(faults, field, "enum", `Unsupported value: ${JSON.stringify(value)}: supported values: ${supported}`);
      }
    }
    if (typeof value !== "number" && typeof value !== "bigint") return;
    const refuse = (part: "min" | "max", detail: string) =>
      this.#add(faults, field, part, `Invalid value: ${exactJson.stringify(value)}: ${detail}`);
    if (rule.min && value < rule.min[0]) refuse("min", rule.min[1]);
    if (rule.max && value > rule.max[0]) refuse("max", rule.max[1]);
  }

  #addFormatFaults(faults: FieldRuleFault[], field: string, part: "format" | "keys", format: string, text: string) {
    for (const detail of textFormats[format]?.(text, this.#tables.kubernetes) ?? [])
      this.#add(faults, field, part, `Invalid value: ${JSON.stringify(text)}: ${detail}`);
  }

  #add(faults: FieldRuleFault[], field: string, part: keyof FieldRule, message: string): void {
    const reason = reasons[message.split(":", 1)[0] ?? ""] ?? "";
    faults.push({ field, message, reason, place: this.#place, part });
  }

  #validateMembers(fields: Fields, field: string, faults: FieldRuleFault[]): void {
    const members = this.#tables.types[this.#word] ?? {};
    const validate = (member: string, value: unknown) => {
      const validator = this.#find(member, members[member] ?? "");
      validator?.validate(value, field === "" ? member : `${field}.${member}`, "", fields, faults);
    };
    for (const [member, value] of Object.entries(fields))
      if (Object.hasOwn(members, member) && !isAbsent(value)) validate(member, value);
    // Required members, and structs that Go has anyway.
    this.#required ??= Object.entries(members).flatMap(([member, word]) => {
      const isRequired = this.#find(member, word)?.isRequired;
      return isRequired || Object.hasOwn(this.#tables.types, word.replace("?", "")) ? [member] : [];
    });
    for (const member of this.#required) if (isAbsent(fields[member])) validate(member, undefined);
  }

  /** Returns the validator of a member or an element; undefined if no value of it has a fault. */
  #find(member: string, word: string): FieldValidator | undefined {
    if (this.#inner.has(member)) return this.#inner.get(member);
    const { type, member: own, path } = this.#place;
    const isElement = member === "[]" || member === "{}";
    const place = isElement
      ? { type, member: `${own}${member}`, path: `${path}${member}` }
      : { type: this.#word, member, path: path === "" ? member : `${path}.${member}` };
    const made = new FieldValidator(word.replace("?", ""), place, this.#tables);
    const found = made.isIdle ? undefined : made;
    this.#inner.set(member, found);
    return found;
  }
}

const isAbsent = (value: unknown): value is null | undefined => value === null || value === undefined;

const isZero = (value: unknown): boolean =>
  value === "" ||
  value === 0 ||
  (Array.isArray(value) && value.length === 0) ||
  (isMap(value) && Object.keys(value).length === 0);

const reasons: Readonly<Record<string, string>> = {
  "Required value": "FieldValueRequired",
  "Invalid value": "FieldValueInvalid",
  "Unsupported value": "FieldValueNotSupported",
  Forbidden: "FieldValueForbidden",
};

/**
 * Returns a function that finds the faults of a complete object of a built-in kind; undefined for a kind whose types
 * aren't known. A kind is compiled when it is seen first.
 */
export const createFieldValidation = (
  { types, kinds }: FieldRules,
  kubernetes: string | undefined,
): ((object: KubernetesObject) => FieldRuleFault[] | undefined) => {
  const known: { kinds: Record<string, Record<string, string>>; types: Record<string, Record<string, string>> } =
    selectMinor(newestTypes, olderTypes, kubernetes);
  const validators = new Map<string, FieldValidator | undefined>();
  const create = (apiVersion: string, kind: string) => {
    const words = Object.hasOwn(known.kinds, apiVersion) ? known.kinds[apiVersion] : undefined;
    const word = words && Object.hasOwn(words, kind) ? words[kind] : undefined;
    const own = kinds[`${apiVersion} ${kind}`] ?? {};
    const findRule = ({ type, member, path }: FieldPlace) => {
      const [shared, special] = [types[type]?.[member], own[path]];
      return special ? { ...shared, ...special } : shared;
    };
    const place = { type: "", member: "", path: "" };
    return word === undefined
      ? undefined
      : new FieldValidator(word, place, { kubernetes, types: known.types, findRule });
  };
  return (object) => {
    const { apiVersion = "", kind = "" } = object;
    const key = `${apiVersion} ${kind}`;
    if (!validators.has(key)) validators.set(key, create(apiVersion, kind));
    const validator = validators.get(key);
    if (validator === undefined) return undefined;
    const faults: FieldRuleFault[] = [];
    // Requests for an object don't set its status.
    validator.validate({ ...object, status: undefined }, "", "", {}, faults);
    return faults;
  };
};

const validations = new Map<string | undefined, ReturnType<typeof createFieldValidation>>();

/** Returns the rules of a minor of Kubernetes, or of the newest. */
export const selectFieldRules = (kubernetes?: string): FieldRules =>
  // JSON has lists where the type has pairs.
  selectMinor(newestRules as unknown as FieldRules, olderRules, kubernetes);

/** Returns the faults of a complete object of a built-in kind, as far as they are known; undefined for other kinds. */
export const validateFields = (object: KubernetesObject, kubernetes?: string): FieldRuleFault[] | undefined => {
  const validate = validations.get(kubernetes) ?? createFieldValidation(selectFieldRules(kubernetes), kubernetes);
  validations.set(kubernetes, validate);
  return validate(object);
};
