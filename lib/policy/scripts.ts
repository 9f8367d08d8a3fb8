import { splitCueScript } from "../cue/script.ts";
import { Failure } from "../failure.ts";
import { isMap } from "../json.ts";
import type { PolicyCapabilities, PolicyPatchOperation, PolicyRequest, ScriptHttpRequest } from "./types.ts";

/** The result of a validating CUE script. */
export interface CueScriptVerdict {
  valid: boolean;
  reason: string;
}

/**
 * Returns the patch of an overriding script. On a dry run, throws if the script describes an HTTP request whose
 * method is not GET or HEAD.
 */
export const evaluateOverrideScript = async (
  script: string,
  object: unknown,
  capabilities: PolicyCapabilities,
  { dryRun = false }: { dryRun?: boolean } = {},
): Promise<PolicyPatchOperation[]> =>
  parsePatches(await evaluateWithRequest(script, { object }, "patches", capabilities, dryRun));

/** Returns whether a validate policy's CUE script admits the request. */
export const evaluateValidateScript = async (
  script: string,
  { operation, object, oldObject, dryRun = false }: PolicyRequest,
  capabilities: PolicyCapabilities,
): Promise<CueScriptVerdict> => {
  const inputs = { object, ...(operation === "UPDATE" && oldObject !== undefined && { oldObject }) };
  return parseVerdict(await evaluateWithRequest(script, inputs, "validate", capabilities, dryRun));
};

/** Evaluates a script without inputs. Returns CUE's message if that fails; undefined if the script compiles. */
export const findScriptFault = async (
  script: string,
  evaluateCue: PolicyCapabilities["evaluateCue"],
): Promise<string | undefined> => {
  try {
    const { name, text } = wrapScript(script);
    await evaluateStruct(evaluateCue, name, text);
    return undefined;
  } catch (error) {
    // A Failure is no fault of the script: CUE could not run.
    if (error instanceof Failure || !(error instanceof Error)) throw error;
    return error.message;
  }
};

/**
 * Reports whether a script's output has a wrong type, whatever object the script is given: it is evaluated without an
 * object. The output is unified (`&`) with the types that it must not have. If this succeeds (`!= _|_`), it has one.
 */
export const hasWrongOutput = async (
  script: string,
  output: OutputField,
  evaluateCue: PolicyCapabilities["evaluateCue"],
): Promise<boolean> => {
  const { name, text } = wrapScript(script);
  const { wrong } = await evaluateStruct(
    evaluateCue,
    name,
    `${text}if (${name}.${output} & (${forbiddenTypes[output]})) != _|_ {"wrong": true}\n`,
  );
  return wrong === true;
};

/** A script in a hidden CUE field. The field isn't part of the output, so its values needn't be concrete. */
interface WrappedScript {
  /** The hidden field's name, such as `_u`. */
  name: string;
  /** The CUE that declares the hidden field: the script's imports, and the field with the rest of the script. */
  text: string;
}

const wrapScript = (script: string): WrappedScript => {
  const { imports, declarations } = splitCueScript(script);
  // The hidden field's name must not occur in the script, so it has one u more than the longest `_u…` in the script.
  const count = (script.match(/_u+/g) ?? []).reduce((longest, { length }) => Math.max(longest, length), 1);
  const name = `_${"u".repeat(count)}`;
  return { name, text: `${imports}\n${name}: {\n${declarations}\n}\n` };
};

type OutputField = "patches" | "validate";

/** The CUE types that an output field must not have. */
const forbiddenTypes: Record<OutputField, string> = {
  patches: "bool | number | string | bytes | {...}",
  validate: "null | bool | number | string | bytes | [...]",
};

/**
 * Returns a script's output. If the script describes an HTTP request, sends it, and evaluates the script again with the
 * response as an input.
 */
const evaluateWithRequest = async (
  script: string,
  inputs: Record<string, unknown>,
  output: OutputField,
  capabilities: PolicyCapabilities,
  dryRun: boolean,
): Promise<unknown> => {
  const wrapped = wrapScript(script);
  // Most scripts don't contain the word `processing`. They describe no request, and are evaluated only once.
  if (!script.includes("processing")) return evaluateOutput(wrapped, inputs, output, capabilities);
  const request = await findHttpRequest(wrapped, inputs, capabilities.evaluateCue);
  if (request === undefined) return evaluateOutput(wrapped, inputs, output, capabilities);
  const method = request.method.toUpperCase();
  if (dryRun && method !== "GET" && method !== "HEAD")
    throw new Error(`processing.http is a ${method}, which is not sent on dry run`);
  const answer = await capabilities.sendScriptRequest(request);
  return evaluateOutput(wrapped, { ...inputs, processing: { output: answer } }, output, capabilities);
};

/** Evaluates a CUE script with its inputs, and returns one of its fields. */
const evaluateOutput = async (
  { name, text }: WrappedScript,
  inputs: Record<string, unknown>,
  output: OutputField,
  { evaluateCue }: PolicyCapabilities,
): Promise<unknown> => {
  // The output has the name of the script's own output field, because CUE's error messages contain the name.
  const source = `${text}${renderInputs(name, inputs)}"${output}": ${name}.${output}\n`;
  const value = await evaluateStruct(evaluateCue, name, source).catch((error) => {
    if (error instanceof Error && error.message === `${output}: undefined field: ${output}`)
      throw new Error(`the script has no ${output}`);
    throw error;
  });
  return value[output];
};

/** Renders inputs as quoted fields. CUE can't refer to a quoted field, so a script must declare the inputs it uses. */
const renderInputs = (name: string, inputs: Record<string, unknown>): string =>
  Object.entries(inputs)
    .map(([field, value]) => `${name}: "${field}": ${toCueLiteral(value)}\n`)
    .join("");

/** Renders a value as JSON that is also CUE: lone surrogates are replaced, and byte order marks escaped. */
const toCueLiteral = (value: unknown): string => {
  const text = JSON.stringify(value) ?? "null";
  // JSON.stringify escapes lone surrogates, such as \ud800. The pattern also matches \\, so \\ud800 stays a text.
  const wellFormed = text.includes("\\ud")
    ? text.replace(/\\(?:ud[89a-f][\da-f]{2}|.)/g, (sequence) => (sequence.startsWith("\\ud") ? "\\ufffd" : sequence))
    : text;
  return wellFormed.replaceAll("\uFEFF", "\\ufeff");
};

/** Evaluates CUE to a struct. Error messages are shortened, and don't contain the wrapping hidden field (`name`). */
const evaluateStruct = async (
  evaluateCue: PolicyCapabilities["evaluateCue"],
  name: string,
  source: string,
): Promise<Record<string, unknown>> => {
  const json = await evaluateCue(source).catch((error) => {
    if (error instanceof Failure || !(error instanceof Error)) throw error;
    const message = error.message.replace(/^cue: marshal error: /, "").replaceAll(`${name}.`, "");
    throw new Error(message.slice(0, maxMessageLength), { cause: error });
  });
  // Only JSON with a large exponent or at least 309 digits can have a number that is too large.
  const value: unknown = JSON.parse(json, /E\+|\d{309}/.test(json) ? requireFiniteNumber : undefined);
  if (!isMap(value)) throw new Error("the script has no value");
  return value;
};

/** A reviver for JSON.parse that throws if a number is too large for JavaScript: it would become null in JSON. */
const requireFiniteNumber = (_: string, value: unknown): unknown => {
  if (value !== Number.POSITIVE_INFINITY && value !== Number.NEGATIVE_INFINITY) return value;
  throw new Error("the script has a number that is too large");
};

/** The most characters of an error message about a script. A message of CUE may quote the whole input. */
const maxMessageLength = 1000;

/** Returns the HTTP request that a script describes in `processing.http`; undefined if there is none. */
const findHttpRequest = async (
  { name, text }: WrappedScript,
  inputs: Record<string, unknown>,
  evaluateCue: PolicyCapabilities["evaluateCue"],
): Promise<ScriptHttpRequest | undefined> => {
  const http = `${name}.processing.http`;
  const source = [
    `${text}${renderInputs(name, inputs)}`,
    `if ${http} != _|_ {"http": ${http}}\n`,
    `if (${http}.request.body & bytes) != _|_ {"bodyIsBytes": true}\n`,
  ].join("");
  const { http: found, bodyIsBytes } = await evaluateStruct(evaluateCue, name, source);
  if (found === undefined) return undefined;
  const { method, url, request, tls_config } = requireStruct(found, "processing.http");
  const { body, header, trailer } = requireStruct(request ?? {}, "processing.http.request");
  const { ca, client_crt, client_key } = requireStruct(tls_config ?? {}, "processing.http.tls_config");
  return {
    method: requireText(method, "method"),
    url: requireText(url, "url"),
    request: {
      body: body === undefined ? undefined : requireText(body, "request.body"),
      bodyIsBytes: bodyIsBytes === true,
      header: header === undefined ? undefined : requireTextMap(header, "request.header"),
      trailer: trailer === undefined ? undefined : requireTextMap(trailer, "request.trailer"),
    },
    tls_config:
      tls_config === undefined
        ? undefined
        : {
            ca: requireText(ca, "tls_config.ca"),
            client_crt: client_crt === undefined ? undefined : requireText(client_crt, "tls_config.client_crt"),
            client_key: client_key === undefined ? undefined : requireText(client_key, "tls_config.client_key"),
          },
  };
};

const requireText = (value: unknown, field: string): string => {
  if (typeof value !== "string") throw new Error(`processing.http.${field} must be a text`);
  return value;
};

const requireTextMap = (value: unknown, field: string): Record<string, string> =>
  Object.fromEntries(
    Object.entries(requireStruct(value, `processing.http.${field}`)).map(([name, text]) => [
      name,
      requireText(text, `${field}.${name}`),
    ]),
  );

/** Parses the patch operations that a CUE script returns. Null means no operations, as in Go. */
const parsePatches = (found: unknown): PolicyPatchOperation[] => {
  if (found === null) return [];
  if (!Array.isArray(found)) throw new Error("patches must be a list");
  return found.map((patch: unknown, index) => {
    const { op, path, value } = lowercaseFields(patch, `patches[${index}]`);
    if (typeof op !== "string" || typeof path !== "string")
      throw new Error(`patches[${index}] must have op and path, both texts`);
    return { op, path, ...(value !== undefined && { value }) };
  });
};

const parseVerdict = (found: unknown): CueScriptVerdict => {
  const { valid = true, reason = "" } = lowercaseFields(found, "validate");
  if (typeof valid !== "boolean") throw new Error("validate.valid must be true or false");
  if (typeof reason !== "string") throw new Error("validate.reason must be a text");
  return { valid, reason };
};

/** Lowercases the field names of a script's result, as Go ignores their case. Of equal names, the last one counts. */
const lowercaseFields = (value: unknown, field: string): Record<string, unknown> =>
  Object.fromEntries(Object.entries(requireStruct(value, field)).map(([name, member]) => [name.toLowerCase(), member]));

const requireStruct = (value: unknown, field: string): Record<string, unknown> => {
  if (!isMap(value)) throw new Error(`${field} must be a struct`);
  return value;
};
