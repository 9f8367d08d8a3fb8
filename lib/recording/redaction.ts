import { isObject, parseJson } from "../json.ts";
import { policyGroup } from "../policy/types.ts";
import { isHarmlessField, isRecordableFieldPath, mayRecordMapKey, mayRecordText } from "./kept.ts";
import { type FieldReadTracker, inactiveFieldReadTracker } from "./reads.ts";
import { redactSecretsInScript, seemsSecret } from "./secret-forms.ts";
import { isBareKey, isSecretName, isSecretNumberName, isSecretVariable } from "./secret-names.ts";

/** The path of a member whose text is not redacted. If a path has no index for a list, it means all elements. */
export type UnredactedPath = readonly (string | number)[];

export interface RedactionOptions {
  /** The texts that the rule read. They are not redacted, unless they seem to be secrets. */
  reads?: FieldReadTracker;
  /** True if the request is about Secrets. The objects may have no kind, so it must be stated. */
  isSecret?: boolean;
}

/**
 * Replaces free text in JSON values by placeholders. Equal texts get the same placeholder, in all values of one
 * redaction. Throws if a value is too large or nested too deeply.
 */
export interface RedactValue {
  <T>(value: T, kept?: readonly UnredactedPath[]): T;
  /** Redacts the body of a response, JSON or XML. `content` is the JSON that a rule parsed from it, if any. */
  body(text: string, content?: unknown): string;
}

/** The position of a value in the value that is redacted. */
interface RedactionPosition {
  holder: object;
  /** The key of the value in `holder`, or its index if `holder` is a list. */
  member: string;
  /** The last key on the path that is no index. For elements of a list, it is the key of the list. */
  key: string;
  parentKey: string;
  /** The name of the list that contains the value, such as A for b in `{ name: A, values: [b] }`; "" if it has none. */
  listName: string;
  depth: number;
  /** Whether the value is in a Secret's data. */
  isInSecretData: boolean;
  /** Whether the value is in a policy. */
  isPolicy: boolean;
  /** Whether an unredacted path ends at this value, or at a value that contains it. */
  isUnredacted: boolean;
  /**
   * The unredacted paths that lead to this value or below it, each without the steps that lead to this value. An empty
   * path means this value.
   */
  paths: readonly UnredactedPath[];
}

const maxDepth = 100;
/** The most characters of a value. */
const maxSize = 2 * 1024 * 1024;

/** Returns a function that copies a value and replaces free text by placeholders. */
export const createRedactor = ({
  reads = inactiveFieldReadTracker,
  isSecret = false,
}: RedactionOptions = {}): RedactValue => {
  const placeholders = new Map<string, string>();
  let remainingSize = 0;

  const getPlaceholder = (text: string): string => {
    const placeholder = placeholders.get(text) ?? createPlaceholder(text, placeholders.size + 1);
    placeholders.set(text, placeholder);
    return placeholder;
  };

  const copyValue = (value: unknown, at: RedactionPosition): unknown => {
    remainingSize -= typeof value === "string" ? value.length : 8;
    if (remainingSize < 0 || at.depth > maxDepth) throw new Error("it is too large to be recorded");
    if (typeof value === "string") return keepText(value, at) ?? getPlaceholder(value);
    if (typeof value === "number" || typeof value === "bigint")
      return isSecretNumberName(at.key) && !at.isUnredacted ? 0 : value;
    if (!isObject(value)) return value;
    const inner = { ...at, holder: value, depth: at.depth + 1 };
    if (Array.isArray(value)) {
      const listName = Array.isArray(at.holder) ? at.listName : getName(at);
      return value.map((item, index) =>
        copyValue(item, {
          ...inner,
          ...toUnredactedMembers(at, selectElementPaths(at.paths, index)),
          listName,
          member: String(index),
        }),
      );
    }
    const isOfSecret = isSecret || Reflect.get(value, "kind") === "Secret";
    const isPolicy = at.isPolicy || String(Reflect.get(value, "apiVersion")).startsWith(`${policyGroup}/`);
    const members = Object.entries(value).map(([key, member]) => {
      const isInSecretData = at.isInSecretData || (isOfSecret && (key === "data" || key === "stringData"));
      const place = {
        ...inner,
        ...toUnredactedMembers(at, selectMemberPaths(at.paths, key)),
        isInSecretData,
        isPolicy,
        member: key,
        key,
        parentKey: at.key,
      };
      return [place.isUnredacted || mayRecordMapKey(key) ? key : getPlaceholder(key), copyValue(member, place)];
    });
    // fromEntries treats __proto__ as an ordinary key; an assignment would not.
    return Object.fromEntries(members);
  };

  const keepText = (text: string, at: RedactionPosition): string | undefined => {
    const isRead = reads.has(at.holder, at.member);
    // A CUE script in a policy is kept with redacted texts. Without the script, the policy would decide differently.
    if (at.key === "cue" && (isRead || at.isPolicy) && !at.isUnredacted)
      return redactSecretsInScript(text, getPlaceholder);
    return isKeptAt(text, at, isRead) ? text : undefined;
  };

  const isKeptAt = (text: string, at: RedactionPosition, isRead: boolean): boolean => {
    if (at.isUnredacted || text === "" || placeholderShape.test(text)) return true;
    if (at.isInSecretData) return false;
    if (text === "true" || text === "false") return true;
    if (isSecretMember(at)) return false;
    if (at.key === "path" && at.isPolicy) return isRecordableFieldPath(text);
    return mayRecordText(text, at) || (isRead && !isNamedSecret(text, at) && !seemsSecret(text, [at.key, getName(at)]));
  };

  const redact = <T>(value: T, kept: readonly UnredactedPath[] = []): T => {
    remainingSize = maxSize;
    return copyValue(value, { ...root, ...toUnredactedMembers(root, kept) }) as T;
  };

  const redactBody = (text: string, content = parseJson(text)): string => {
    if (content !== undefined) return JSON.stringify(redact(content));
    if (!/^\s*</.test(text)) return text === "" ? "" : getPlaceholder(text);
    return text.replace(/(<(\w+)>)([^<>]+)(?=<)/g, (_, tag: string, key: string, elementText: string) => {
      const at = { ...root, key: key.charAt(0).toLowerCase() + key.slice(1) };
      return `${tag}${elementText.trim() === "" ? elementText : (keepText(elementText, at) ?? getPlaceholder(elementText))}`;
    });
  };

  return Object.assign(redact, { body: redactBody });
};

/** The position of a whole value. */
const root: RedactionPosition = {
  holder: {},
  member: "",
  key: "",
  parentKey: "",
  listName: "",
  depth: 0,
  isInSecretData: false,
  isPolicy: false,
  isUnredacted: false,
  paths: [],
};

const selectMemberPaths = (paths: readonly UnredactedPath[], key: string): readonly UnredactedPath[] =>
  paths.length === 0 ? paths : paths.filter(([step]) => step === key).map((path) => path.slice(1));

const selectElementPaths = (paths: readonly UnredactedPath[], index: number): readonly UnredactedPath[] =>
  paths.flatMap((path) => {
    // If the path has no index for this list, it applies to each element.
    if (typeof path[0] !== "number") return [path];
    return path[0] === index ? [path.slice(1)] : [];
  });

/**
 * Returns the members of a value's RedactionPosition that say what stays unredacted in it. `paths` lead from this value
 * to unredacted ones: an empty path means all of this value. All of it is also unredacted if its `container` is.
 */
const toUnredactedMembers = (container: RedactionPosition, paths: readonly UnredactedPath[]) => ({
  paths,
  isUnredacted: container.isUnredacted || paths.some(({ length }) => length === 0),
});

/** Returns a placeholder such as `redacted0001`: a valid name, label and base64. Keeps a URL's scheme or first `/`. */
const createPlaceholder = (text: string, number: number): string => {
  const digits = String(number).padStart(number > 9999 ? 8 : 4, "0");
  const [keptStart = ""] = /^(?:[a-z][a-z0-9+.-]{0,11}:\/\/|\/)/.exec(text) ?? [];
  return `${keptStart}redacted${digits}`;
};
const placeholderShape = /^(?:[a-z][a-z0-9+.-]{0,11}:\/\/|\/)?redacted(?:\d{4}|\d{8})$/;

/** Reports whether a text contains a placeholder that replaced redacted text. */
export const hasPlaceholder = (text: string): boolean => /redacted\d{4}/.test(text);

/** Keys such as `value` in `{ name: token, value: … }`, where the object's `name` is the name of the value. */
const valueKey =
  /^(?:values?|val|text|string|plain|literal|inline|raw|content|data|default|\w*(?:[Vv]alues?|Default))$/;

/** Reports whether a member is a secret by its own key. */
const isSecretMember = ({ holder, key, parentKey, isPolicy }: RedactionPosition): boolean =>
  isSecretName(key) && !isHarmlessField(key, parentKey) && !(isBareKey(key) && (isPolicy || hasSibling(holder)));

/** Reports whether an object has other members that show that its member `key` is a name, not a secret. */
const hasSibling = (holder: object): boolean =>
  Object.keys(holder).some((member) => /^(?:name|operator|effect|path|property|version|value)/.test(member));

/**
 * Returns the name of a value, or "" if the value's own key is its name, as in `{ token: … }`. In a list of arguments,
 * it is the argument before the value; in an object such as `{ name: token, value: … }`, the object's `name` or `key`,
 * or else the key under which the object itself stands.
 */
const getName = ({ holder, member, parentKey }: RedactionPosition): string => {
  if (Array.isArray(holder)) return String(holder[Number(member) - 1] ?? "");
  if (!valueKey.test(member)) return "";
  const { name, key } = holder as { name?: unknown; key?: unknown };
  return [name, key].find((candidate) => typeof candidate === "string") ?? parentKey;
};

/** Reports whether a text is a secret by the name of its variable or header, or by the argument before it. */
const isNamedSecret = (text: string, at: RedactionPosition): boolean => {
  const { holder, parentKey: keyOfHolder, listName } = at;
  const name = getName(at);
  // In an object, the name is its member `name` (`{ name, value }`) or else the object's own key (`token: { value }`).
  // A `name` may have a secret word as part of a longer word, such as PASS in PGPASSFILE; a key must have a whole word.
  if (!Array.isArray(holder)) return name === keyOfHolder ? isSecretName(name) : isSecretVariable(name);
  // In a list, the name is the argument before the text. In `{ name: PASSWORDS, values }`, `listName` is PASSWORDS.
  return (
    (listName !== "" && isSecretVariable(listName)) ||
    // `-u user:password` is a secret. `-u 1000:1000` is a user and a group.
    (/^(?:-u|--user)$/.test(name) && /^[^:]*:(?!\d+$)/.test(text)) ||
    // In `["key", "value"]`, `key` is no option, but in `["--key", value]` it is. After `--key=a`, no value follows.
    (/^[^\s=]+$/.test(name) && !text.startsWith("--") && !isBareKey(name) && isSecretName(name))
  );
};
