import { splitCueScript } from "../cue/script.ts";
import { Failure } from "../failure.ts";
import { isMap } from "../json.ts";
import type { PolicyCapabilities, PolicyPatchOperation, PolicyRequest, ScriptHttpRequest } from "./types.ts";

/** The result of a validating CUE script. */
export interface CueScriptVerdict {
  valid: boolean;
  reason: string;
}

/** Returns the patch of an overriding script. On dry run, throws if the script sends other than GET or HEAD. */
export const evaluateOverrideScript = async (
  script: string,
  object: unknown,
  capabilities: PolicyCapabilities,
  { dryRun = false }: { dryRun?: boolean } = {},
): Promise<PolicyPatchOperation[]> =>
  parsePatches(await evaluateWithRequest(script, { object }, "patches", capabilities, dryRun));

export const evaluateValidateScript = async (
  script: string,
  { operation, object, oldObject, dryRun = false }: PolicyRequest,
  capabilities: PolicyCapabilities,
): Promise<CueScriptVerdict> => {
  const inputs = { object, ...(operation === "UPDATE" && oldObject !== undefined && { oldObject }) };
  return parseVerdict(await evaluateWithRequest(script, inputs, "validate", capabilities, dryRun));
};

/** Returns CUE's message if a script fails even without input; undefined if it compiles. */
export const findScriptFault = async (
  script: string,
  evaluateCue: PolicyCapabilities["evaluateCue"],
): Promise<string | undefined> => {
  try {
    const { name, text } = wrapScript(script);
    await evaluateStruct(evaluateCue, name, text);
    return undefined;
  } catch (error) {
    // A Failure means that CUE could not run, which is no fault of the script.
    if (error instanceof Failure || !(error instanceof Error)) throw error;
    return error.message;
  }
};

/** Reports whether a script's output has a wrong shape, whatever object the script is given. */
export const hasWrongOutput = async (
  script: string,
  output: OutputField,
  evaluateCue: PolicyCapabilities["evaluateCue"],
): Promise<boolean> => {
  const { name, text } = wrapScript(script);
  const { wrong } = await evaluateStruct(
    evaluateCue,
    name,
    `${text}if (${name}.${output} & (${wrongShapes[output]})) != _|_ {"wrong": true}\n`,
  );
  return wrong === true;
};

/** A script inside a hidden CUE field, which is not part of the output: values left open in it cause no error. */
interface WrappedScript {
  name: string;
  text: string;
}

const wrapScript = (script: string): WrappedScript => {
  const { imports, declarations } = splitCueScript(script);
  // Builds a field name that the script doesn't have: `_u…` with one u more than the longest such name in it.
  const most = (script.match(/_u+/g) ?? []).reduce((most, { length }) => Math.max(most, length), 1);
  const name = `_${"u".repeat(most)}`;
  return { name, text: `${imports}\n${name}: {\n${declarations}\n}\n` };
};

type OutputField = "patches" | "validate";

const wrongShapes: Record<OutputField, string> = {
  patches: "bool | number | string | bytes | {...}",
  validate: "null | bool | number | string | bytes | [...]",
};

/** Returns a script's output; if the script describes an HTTP request, sends it and adds the response as input. */
const evaluateWithRequest = async (
  script: string,
  inputs: Record<string, unknown>,
  output: OutputField,
  capabilities: PolicyCapabilities,
  dryRun: boolean,
): Promise<unknown> => {
  const wrapped = wrapScript(script);
  // A script without the word `processing` sends no request. Most scripts are such: one evaluation is enough.
  if (!script.includes("processing")) return evaluateOutput(wrapped, inputs, output, capabilities);
  const request = await findHttpRequest(wrapped, inputs, capabilities.evaluateCue);
  if (request === undefined) return evaluateOutput(wrapped, inputs, output, capabilities);
  const method = request.method.toUpperCase();
  if (dryRun && method !== "GET" && method !== "HEAD")
    throw new Error(`processing.http is a ${method}, which is not sent on dry run`);
  const answer = await capabilities.sendScriptRequest(request);
  return evaluateOutput(wrapped, { ...inputs, processing: { output: answer } }, output, capabilities);
};

const evaluateOutput = async (
  { name, text }: WrappedScript,
  inputs: Record<string, unknown>,
  output: OutputField,
  { evaluateCue }: PolicyCapabilities,
): Promise<unknown> => {
  // The added CUE field has the name of the script's own output field, because CUE's error messages contain the name.
  const source = `${text}${renderInputs(name, inputs)}"${output}": ${name}.${output}\n`;
  const value = await evaluateStruct(evaluateCue, name, source).catch((error) => {
    if (error instanceof Error && error.message === `${output}: undefined field: ${output}`)
      throw new Error(`the script has no ${output}`);
    throw error;
  });
  return value[output];
};

/** Renders inputs as quoted fields. CUE can't refer to quoted names, so a script must declare the inputs it uses. */
const renderInputs = (name: string, inputs: Record<string, unknown>): string =>
  Object.entries(inputs)
    .map(([field, value]) => `${name}: "${field}": ${toCueLiteral(value)}\n`)
    .join("");

/** Renders JSON as CUE accepts it: without lone surrogates, and with byte order marks escaped. */
const toCueLiteral = (value: unknown): string => {
  const text = JSON.stringify(value) ?? "null";
  const wellFormed = text.includes("\\ud")
    ? text.replace(/\\(?:ud[89a-f][\da-f]{2}|.)/g, (sequence) => (sequence.startsWith("\\ud") ? "\\ufffd" : sequence))
    : text;
  return wellFormed.replaceAll("\uFEFF", "\\ufeff");
};

/** Evaluates CUE to a struct; removes the hidden field's name from error messages. */
const evaluateStruct = async (
  evaluateCue: PolicyCapabilities["evaluateCue"],
  name: string,
  source: string,
): Promise<Record<string, unknown>> => {
  const json = await evaluateCue(source).catch((error) => {
    if (error instanceof Failure || !(error instanceof Error)) throw error;
    const message = error.message.replace(/^cue: marshal error: /, "").replaceAll(`${name}.`, "");
    throw new Error(message.slice(0, longestMessage), { cause: error });
  });
  const value: unknown = JSON.parse(json, /E\+|\d{309}/.test(json) ? requireFiniteNumber : undefined);
  if (!isMap(value)) throw new Error("the script has no value");
  return value;
};

/** Throws if a script's result has a number beyond JavaScript's range, which would become null in JSON. */
const requireFiniteNumber = (_: string, value: unknown): unknown => {
  if (value !== Number.POSITIVE_INFINITY && value !== Number.NEGATIVE_INFINITY) return value;
  throw new Error("the script has a number that is too large");
};

/** The most characters of an error message about a script: CUE's messages may quote the whole input. */
const longestMessage = 1000;

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

/** Parses the patch operations that a policy's CUE script returns. Null means none, as in Go. */
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

/** Lowercases field names of a script's result, because Go ignores their case; the last duplicate counts. */
const lowercaseFields = (value: unknown, field: string): Record<string, unknown> =>
  Object.fromEntries(Object.entries(requireStruct(value, field)).map(([name, header]) => [name.toLowerCase(), header]));

const requireStruct = (value: unknown, field: string): Record<string, unknown> => {
  if (!isMap(value)) throw new Error(`${field} must be a struct`);
  return value;
};
