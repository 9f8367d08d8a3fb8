import { isUtf8 } from "node:buffer";
import {
  encoded,
  isLogin,
  isSecretName,
  isSecretOption,
  isSecretType,
  isSecretVariable,
  loginLess,
  withoutShapes,
  word,
} from "./texts.ts";

type Fields = Record<string, unknown>;

/** What is known of where a value stands. */
interface Place {
  depth: number;
  /** How much more may be copied. */
  left: { characters: number };
  /** Whether a Secret is here, or above, that doesn't say so: the kind stands in the request, or in a list. */
  isSecret?: boolean | undefined;
  /** Whether it is in an object from which somebody makes Secrets, by its template. */
  makesSecrets?: boolean;
  /** Whether it stands in a text, as a service's answer does. */
  isText?: boolean;
}

const deepest = 100;
const most = 2 * 1024 * 1024;

/**
 * A copy of a value, as JSON has it, without what nobody may read in it: what Secrets hold, tokens, passwords, private
 * keys. What rules look at stays: names and keys, and the form of what stood there. Undefined where the value is larger,
 * or nests deeper, than anybody would want to keep.
 */
export const redacted = (value: unknown, isSecret = false): unknown => {
  try {
    return copied(value, { depth: 0, left: { characters: most }, isSecret });
  } catch (error) {
    if (error === tooMuch) return undefined;
    throw error;
  }
};

const tooMuch = new Error("there is too much of it");

const copied = (value: unknown, place: Place): unknown => {
  place.left.characters -= typeof value === "string" ? value.length : 8;
  if (place.left.characters < 0) throw tooMuch;
  if (typeof value === "string") return text(value, place);
  if (typeof value !== "object" || value === null) return value;
  const inner = deeper(place);
  return Array.isArray(value) ? list(value, inner) : map(value as Fields, inner);
};

const deeper = (place: Place): Place => {
  if (place.depth > deepest) throw tooMuch;
  return { ...place, depth: place.depth + 1 };
};

const list = (values: unknown[], place: Place): unknown[] =>
  values.map((one, index) => {
    const before: unknown = values[index - 1];
    const isGiven = typeof before === "string" && isSecretOption(before) && typeof one === "string";
    return isGiven && !one.startsWith("-") ? word : copied(one, place);
  });

const map = (value: Fields, { isSecret, ...place }: Place): Fields => {
  const { kind, type, name, value: given } = value;
  const isTemplate = kind === undefined && typeof type === "string" && isSecretType(type);
  const holdsSecret = isSecret || kind === "Secret" || isTemplate;
  const makesSecrets = place.makesSecrets || (typeof kind === "string" && /.Secret$/.test(kind));
  const isVariable = typeof name === "string" && typeof given === "string" && isSecretVariable(name);
  const members = Object.entries(value).map(([key, one]) => {
    const named = withoutShapes(key);
    const isMadeHere = makesSecrets && key === "template";
    const at = {
      ...place,
      makesSecrets,
      isSecret: isSecret || isMadeHere || (kind === "SecretList" && key === "items"),
    };
    if (holdsSecret && key === "data") return [named, held(one, inBase64)];
    if (key === "stringData") return [named, held(one, inText)];
    if (isVariable && key === "value") return [named, word];
    if (key === "auth" && typeof one === "string" && isLogin(one)) return [named, loginLess];
    if (isSecretName(key) || (place.isText && key === "secret")) return [named, ofSecretName(one, at)];
    return [named, copied(one, at)];
  });
  // fromEntries takes __proto__ for a key like any other, where an assignment would not.
  return Object.fromEntries(members);
};

/** A text, an empty one as it is; a list of them, as headers are; what says `value`; anything else as everywhere. */
const ofSecretName = (value: unknown, place: Place): unknown => {
  if (typeof value === "string") return value && word;
  if (typeof value === "number") return 0;
  if (Array.isArray(value)) return value.map((one) => ofSecretName(one, deeper(place)));
  const { value: given } = Object(value);
  return copied(typeof given === "string" ? { ...Object(value), value: given && word } : value, place);
};

/** What a Secret holds, key by key. */
const held = (data: unknown, form: (key: string, value: string) => string): unknown => {
  if (typeof data !== "object" || data === null) return data === null || data === undefined ? data : word;
  if (Array.isArray(data)) return [];
  const members = Object.entries(data).map(([key, value]) => {
    return [withoutShapes(key), typeof value === "string" ? value && form(key, value) : null];
  });
  return Object.fromEntries(members);
};

const inText = (key: string, value: string): string => (isDockerConfig(key) ? dockerConfig(value) : word);
const inBase64 = (key: string, value: string): string =>
  isDockerConfig(key) ? Buffer.from(dockerConfig(Buffer.from(value, "base64").toString())).toString("base64") : encoded;

const isDockerConfig = (key: string) => key === ".dockerconfigjson" || key === ".dockercfg";

/** The registries that it is for, and nothing of who logs in there. */
const dockerConfig = (text: string): string => {
  const config = parsed(text);
  const { auths } = Object(config);
  const emptied = (registries: unknown) =>
    Object.fromEntries(Object.keys(Object(registries)).map((host) => [withoutShapes(host), { auth: loginLess }]));
  return JSON.stringify(auths === undefined ? emptied(config) : { auths: emptied(auths) });
};

/** A text that is JSON, or has it or another text in base64, is redacted as what it says; it stays as it is where nothing must go. */
const text = (value: string, place: Place): string => {
  const content = /^\s*[{["]/.test(value) ? parsed(value) : undefined;
  if (content === undefined) return withoutShapes(unpacked(value, place));
  // Before it is written again: what is too deep to be copied is too deep for that.
  const copy = copied(content, { depth: place.depth + 1, left: place.left, isText: true });
  const after = JSON.stringify(copy);
  // A key that stands there twice is read once.
  return JSON.stringify(content) === after && withoutShapes(value) === value ? value : after;
};

/** Base64 of some length in which a text stands. */
const unpacked = (value: string, place: Place): string => {
  if (value.length < 24 || value.length % 4 > 0 || !/^[A-Za-z0-9+/]+={0,2}$/.test(value)) return value;
  const bytes = Buffer.from(value, "base64");
  if (!isUtf8(bytes)) return value;
  const content = bytes.toString();
  const after = text(content, deeper(place));
  return after === content ? value : Buffer.from(after).toString("base64");
};

const parsed = (text: string): unknown => {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
};
