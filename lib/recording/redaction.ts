import { isObject, parseJson } from "../json.ts";
import { policyGroup } from "../policy/types.ts";
import { isNameKey, isRecordableFieldPath, mayRecordMapKey, mayRecordText } from "./kept.ts";
import { type FieldReadTracker, inactiveFieldReadTracker } from "./reads.ts";
import { redactSecretsInScript, seemsSecret } from "./secret-forms.ts";
import { isBareKey, isSecretName, isSecretNumberName, isSecretVariable } from "./secret-names.ts";

/** The path to a member whose text recordings keep unredacted. A list without an index means all its elements. */
export type UnredactedPath = readonly (string | number)[];

export interface RedactionOptions {
  reads?: FieldReadTracker;
  /** True if the recorded request is about Secrets, which can't be known from an object without a kind. */
  isSecret?: boolean;
}

/**
 * Replaces free text in JSON values by placeholders. In all values of one redaction, equal texts get the same
 * placeholder. Throws if a value is too large or nested too deep.
 */
export interface RedactValue {
  <T>(value: T, kept?: readonly UnredactedPath[]): T;
  /** Redacts the body of a response, JSON or XML. `content` is the JSON that a rule parsed from it, if any. */
  body(text: string, content?: unknown): string;
}

interface RedactionPosition {
  holder: object;
  /** The key of the value in `holder`, or its index if `holder` is a list. */
  member: string;
  /** The last key on the path that is no index: elements of a list have the key of the list. */
  key: string;
  parentKey: string;
  /** The name of the list that the value is in, if the object around the list has one. */
  listName: string;
  depth: number;
  /** `isHeld`: below a Secret's data; `isPolicy`: in a policy; `isChosen`: at a path that stays unredacted. */
  isHeld: boolean;
  isPolicy: boolean;
  isChosen: boolean;
  paths: readonly UnredactedPath[];
}

const deepest = 100;
const most = 2 * 1024 * 1024;

export const createRedactor = ({
  reads = inactiveFieldReadTracker,
  isSecret = false,
}: RedactionOptions = {}): RedactValue => {
  const placeholders = new Map<string, string>();
  let left = 0;

  const getPlaceholder = (text: string): string => {
    const known = placeholders.get(text) ?? createPlaceholder(text, placeholders.size + 1);
    placeholders.set(text, known);
    return known;
  };

  const copyValue = (value: unknown, at: RedactionPosition): unknown => {
    left -= typeof value === "string" ? value.length : 8;
    if (left < 0 || at.depth > deepest) throw new Error("it is too large to be recorded");
    if (typeof value === "string") return keepText(value, at) ?? getPlaceholder(value);
    if (typeof value === "number" || typeof value === "bigint")
      return isSecretNumberName(at.key) && !at.isChosen ? 0 : value;
    if (!isObject(value)) return value;
    const inner = { ...at, holder: value, depth: at.depth + 1 };
    if (Array.isArray(value)) {
      const listName = Array.isArray(at.holder) ? at.listName : getName(at);
      return value.map((item, index) =>
        copyValue(item, {
          ...inner,
          ...choosePaths(at, selectElementPaths(at.paths, index)),
          listName,
          member: String(index),
        }),
      );
    }
    const isOfSecret = isSecret || Reflect.get(value, "kind") === "Secret";
    const isPolicy = at.isPolicy || String(Reflect.get(value, "apiVersion")).startsWith(`${policyGroup}/`);
    const members = Object.entries(value).map(([key, member]) => {
      const isHeld = at.isHeld || (isOfSecret && (key === "data" || key === "stringData"));
      const place = {
        ...inner,
        ...choosePaths(at, selectMemberPaths(at.paths, key)),
        isHeld,
        isPolicy,
        member: key,
        key,
        parentKey: at.key,
      };
      return [place.isChosen || mayRecordMapKey(key) ? key : getPlaceholder(key), copyValue(member, place)];
    });
    // fromEntries treats __proto__ as an ordinary key; an assignment would not.
    return Object.fromEntries(members);
  };

  const keepText = (text: string, at: RedactionPosition): string | undefined => {
    const isRead = reads.has(at.holder, at.member);
    // A CUE script in a policy is kept, with its texts redacted: without it, the policy would behave differently.
    if (at.key === "cue" && (isRead || at.isPolicy) && !at.isChosen) return redactSecretsInScript(text, getPlaceholder);
    return isKeptAt(text, at, isRead) ? text : undefined;
  };

  const isKeptAt = (text: string, at: RedactionPosition, isRead: boolean): boolean => {
    if (at.isChosen || text === "" || placeholderShape.test(text)) return true;
    if (at.isHeld) return false;
    if (text === "true" || text === "false") return true;
    if (isSecretMember(at)) return false;
    if (at.key === "path" && at.isPolicy) return isRecordableFieldPath(text);
    return mayRecordText(text, at) || (isRead && !isNamedSecret(text, at) && !seemsSecret(text, [at.key, getName(at)]));
  };

  const redact = <T>(value: T, kept: readonly UnredactedPath[] = []): T => {
    left = most;
    return copyValue(value, { ...root, ...choosePaths(root, kept) }) as T;
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

const root: RedactionPosition = {
  holder: {},
  member: "",
  key: "",
  parentKey: "",
  listName: "",
  depth: 0,
  isHeld: false,
  isPolicy: false,
  isChosen: false,
  paths: [],
};

const selectMemberPaths = (paths: readonly UnredactedPath[], key: string): readonly UnredactedPath[] =>
  paths.length === 0 ? paths : paths.filter(([step]) => step === key).map((path) => path.slice(1));

const selectElementPaths = (paths: readonly UnredactedPath[], index: number): readonly UnredactedPath[] =>
  paths.flatMap((path) => {
    // A path without an index here is about each element.
    if (typeof path[0] !== "number") return [path];
    return path[0] === index ? [path.slice(1)] : [];
  });

const choosePaths = ({ isChosen }: RedactionPosition, paths: readonly UnredactedPath[]) => ({
  paths,
  isChosen: isChosen || paths.some(({ length }) => length === 0),
});

/** Returns a placeholder for redacted text, valid as a name, a label and base64. A URL keeps its scheme. */
const createPlaceholder = (text: string, number: number): string => {
  const digits = String(number).padStart(number > 9999 ? 8 : 4, "0");
  const [scheme = ""] = /^(?:[a-z][a-z0-9+.-]{0,11}:\/\/|\/)/.exec(text) ?? [];
  return `${scheme}redacted${digits}`;
};
const placeholderShape = /^(?:[a-z][a-z0-9+.-]{0,11}:\/\/|\/)?redacted(?:\d{4}|\d{8})$/;

/** Reports whether a text contains a placeholder that replaced redacted text. */
export const hasPlaceholder = (text: string): boolean => /redacted\d{4}/.test(text);

/** Keys such as `value` in `{ name: token, value: … }`: what they hold is the value of what the object names. */
const valueKey =
  /^(?:values?|val|text|string|plain|literal|inline|raw|content|data|default|\w*(?:[Vv]alues?|Default))$/;

/** Reports whether a member's own key says that it is a secret. */
const isSecretMember = ({ holder, key, parentKey, isPolicy }: RedactionPosition): boolean =>
  isSecretName(key) && !isNameKey(key, parentKey) && !(isBareKey(key) && (isPolicy || hasSibling(holder)));

/** Reports whether an object's member `key` is the name of something, as the members beside it show. */
const hasSibling = (holder: object): boolean =>
  Object.keys(holder).some((member) => /^(?:name|operator|effect|path|property|version|value)/.test(member));

/** Returns the name that is given to a text beside it: in an object with a name and a value, or by the argument before. */
const getName = ({ holder, member, parentKey }: RedactionPosition): string => {
  if (Array.isArray(holder)) return String(holder[Number(member) - 1] ?? "");
  if (!valueKey.test(member)) return "";
  const { name, key } = holder as { name?: unknown; key?: unknown };
  return [name, key].find((one) => typeof one === "string") ?? parentKey;
};

/** Reports whether the name of a variable or header, or the argument before it, says that a text is a secret. */
const isNamedSecret = (text: string, at: RedactionPosition): boolean => {
  const name = getName(at);
  if (!Array.isArray(at.holder)) return name === at.parentKey ? isSecretName(name) : isSecretVariable(name);
  return (
    (at.listName !== "" && isSecretVariable(at.listName)) ||
    (/^(?:-u|--user)$/.test(name) && /^[^:]*:(?!\d+$)/.test(text)) ||
    // `["key", "value"]` lists names; `["--key", value]` has an option. After `--key=a`, another argument follows.
    (/^[^\s=]+$/.test(name) && !text.startsWith("--") && !isBareKey(name) && isSecretName(name))
  );
};
