import { parted } from "../cue/script.ts";
import { Failure } from "../failure.ts";
import { isMap } from "../json.ts";
import type { PatchOperation, ProcessingRequest, Reach, Subject } from "./types.ts";

export interface ScriptedVerdict {
  valid: boolean;
  reason: string;
}

/** Returns the patch of an overriding script. On dry run, throws if the script sends other than GET or HEAD. */
export const patchesOf = async (
  script: string,
  object: unknown,
  reach: Reach,
  { dryRun = false }: { dryRun?: boolean } = {},
): Promise<PatchOperation[]> => patchesIn(await outcome(script, { object }, "patches", reach, dryRun));

export const verdictOf = async (
  script: string,
  { operation, object, oldObject, dryRun = false }: Subject,
  reach: Reach,
): Promise<ScriptedVerdict> => {
  const inputs = { object, ...(operation === "UPDATE" && oldObject !== undefined && { oldObject }) };
  return verdictIn(await outcome(script, inputs, "validate", reach, dryRun));
};

/** Returns CUE's message if a script fails even without input; undefined if it compiles. */
export const faultOfScript = async (script: string, cue: Reach["cue"]): Promise<string | undefined> => {
  try {
    const { name, text } = around(script);
    await asking(cue, name, text);
    return undefined;
  } catch (error) {
    // A Failure means that CUE could not run, which is no fault of the script.
    if (error instanceof Failure || !(error instanceof Error)) throw error;
    return error.message;
  }
};

/** Reports whether a script's output has a wrong shape, whatever object the script is given. */
export const hasWrongOutput = async (script: string, output: Output, cue: Reach["cue"]): Promise<boolean> => {
  const { name, text } = around(script);
  const { wrong } = await asking(
    cue,
    name,
    `${text}if (${name}.${output} & (${wrongShapes[output]})) != _|_ {"wrong": true}\n`,
  );
  return wrong === true;
};

/** A script inside a hidden CUE field, which is not part of the output: values left open in it cause no error. */
interface Wrapped {
  name: string;
  text: string;
}

const around = (script: string): Wrapped => {
  const { imports, declarations } = parted(script);
  // One u more than the longest such name in the script.
  const most = (script.match(/_u+/g) ?? []).reduce((most, { length }) => Math.max(most, length), 1);
  const name = `_${"u".repeat(most)}`;
  return { name, text: `${imports}\n${name}: {\n${declarations}\n}\n` };
};

type Output = "patches" | "validate";

const wrongShapes: Record<Output, string> = {
  patches: "bool | number | string | bytes | {...}",
  validate: "null | bool | number | string | bytes | [...]",
};

/** Returns the output of a script, after sending the one request that the script may describe. */
const outcome = async (
  script: string,
  inputs: Record<string, unknown>,
  output: Output,
  reach: Reach,
  dryRun: boolean,
): Promise<unknown> => {
  const wrapped = around(script);
  // Most scripts send no request; this saves them one evaluation.
  if (!script.includes("processing")) return evaluated(wrapped, inputs, output, reach);
  const request = await requestOf(wrapped, inputs, reach.cue);
  if (request === undefined) return evaluated(wrapped, inputs, output, reach);
  const method = request.method.toUpperCase();
  if (dryRun && method !== "GET" && method !== "HEAD")
    throw new Error(`processing.http is a ${method}, which is not sent on dry run`);
  const answer = await reach.process(request);
  return evaluated(wrapped, { ...inputs, processing: { output: answer } }, output, reach);
};

const evaluated = async (
  { name, text }: Wrapped,
  inputs: Record<string, unknown>,
  output: Output,
  { cue }: Reach,
): Promise<unknown> => {
  // The field has the name that the script's author knows, because CUE's messages contain it.
  const source = `${text}${given(name, inputs)}"${output}": ${name}.${output}\n`;
  const value = await asking(cue, name, source).catch((error) => {
    if (error instanceof Error && error.message === `${output}: undefined field: ${output}`)
      throw new Error(`the script has no ${output}`);
    throw error;
  });
  return value[output];
};

/** Renders inputs as quoted fields. CUE can't refer to quoted names, so a script must declare the inputs it uses. */
const given = (name: string, inputs: Record<string, unknown>): string =>
  Object.entries(inputs)
    .map(([field, value]) => `${name}: "${field}": ${literal(value)}\n`)
    .join("");

/** Renders JSON as CUE accepts it: without lone surrogates, and with byte order marks escaped. */
const literal = (value: unknown): string => {
  const text = JSON.stringify(value) ?? "null";
  const whole = text.includes("\\ud")
    ? text.replace(/\\(?:ud[89a-f][\da-f]{2}|.)/g, (sequence) => (sequence.startsWith("\\ud") ? "\\ufffd" : sequence))
    : text;
  return whole.replaceAll("\uFEFF", "\\ufeff");
};

/** Evaluates CUE to a struct; removes the hidden field's name from error messages. */
const asking = async (cue: Reach["cue"], name: string, source: string): Promise<Record<string, unknown>> => {
  const json = await cue(source).catch((error) => {
    if (error instanceof Failure || !(error instanceof Error)) throw error;
    const message = error.message.replace(/^cue: marshal error: /, "").replaceAll(`${name}.`, "");
    throw new Error(message.slice(0, longestMessage), { cause: error });
  });
  const value: unknown = JSON.parse(json, /E\+|\d{309}/.test(json) ? finite : undefined);
  if (!isMap(value)) throw new Error("the script has no value");
  return value;
};

/** Rejects numbers beyond JavaScript's range, which would become null in JSON. */
const finite = (_: string, value: unknown): unknown => {
  if (value !== Number.POSITIVE_INFINITY && value !== Number.NEGATIVE_INFINITY) return value;
  throw new Error("the script has a number that is too large");
};

/** In characters: messages of CUE may quote the whole input. */
const longestMessage = 1000;

const requestOf = async (
  { name, text }: Wrapped,
  inputs: Record<string, unknown>,
  cue: Reach["cue"],
): Promise<ProcessingRequest | undefined> => {
  const http = `${name}.processing.http`;
  const source = [
    `${text}${given(name, inputs)}`,
    `if ${http} != _|_ {"http": ${http}}\n`,
    `if (${http}.request.body & bytes) != _|_ {"bodyIsBytes": true}\n`,
  ].join("");
  const { http: found, bodyIsBytes } = await asking(cue, name, source);
  if (found === undefined) return undefined;
  const { method, url, request, tls_config } = mapOf(found, "processing.http");
  const { body, header, trailer } = mapOf(request ?? {}, "processing.http.request");
  const { ca, client_crt, client_key } = mapOf(tls_config ?? {}, "processing.http.tls_config");
  return {
    method: textOf(method, "method"),
    url: textOf(url, "url"),
    request: {
      body: body === undefined ? undefined : textOf(body, "request.body"),
      bodyIsBytes: bodyIsBytes === true,
      header: header === undefined ? undefined : textsOf(header, "request.header"),
      trailer: trailer === undefined ? undefined : textsOf(trailer, "request.trailer"),
    },
    tls_config:
      tls_config === undefined
        ? undefined
        : {
            ca: textOf(ca, "tls_config.ca"),
            client_crt: client_crt === undefined ? undefined : textOf(client_crt, "tls_config.client_crt"),
            client_key: client_key === undefined ? undefined : textOf(client_key, "tls_config.client_key"),
          },
  };
};

const textOf = (value: unknown, field: string): string => {
  if (typeof value !== "string") throw new Error(`processing.http.${field} must be a text`);
  return value;
};

const textsOf = (value: unknown, field: string): Record<string, string> =>
  Object.fromEntries(
    Object.entries(mapOf(value, `processing.http.${field}`)).map(([name, text]) => [
      name,
      textOf(text, `${field}.${name}`),
    ]),
  );

/** Null means no patch, as in Go. */
const patchesIn = (found: unknown): PatchOperation[] => {
  if (found === null) return [];
  if (!Array.isArray(found)) throw new Error("patches must be a list");
  return found.map((patch: unknown, index) => {
    const { op, path, value } = fieldsOf(patch, `patches[${index}]`);
    if (typeof op !== "string" || typeof path !== "string")
      throw new Error(`patches[${index}] must have op and path, both texts`);
    return { op, path, ...(value !== undefined && { value }) };
  });
};

const verdictIn = (found: unknown): ScriptedVerdict => {
  const { valid = true, reason = "" } = fieldsOf(found, "validate");
  if (typeof valid !== "boolean") throw new Error("validate.valid must be true or false");
  if (typeof reason !== "string") throw new Error("validate.reason must be a text");
  return { valid, reason };
};

/** Lowercases field names: Go, for which such scripts were written, ignores their case; the last duplicate counts. */
const fieldsOf = (value: unknown, field: string): Record<string, unknown> =>
  Object.fromEntries(Object.entries(mapOf(value, field)).map(([name, one]) => [name.toLowerCase(), one]));

const mapOf = (value: unknown, field: string): Record<string, unknown> => {
  if (!isMap(value)) throw new Error(`${field} must be a struct`);
  return value;
};
