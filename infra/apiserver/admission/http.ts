import { isMap, type JsonMap, parseJson } from "#lib/json.ts";
import type { DefaultedWebhookEntry } from "./hooks.ts";
import type { HookCallResult } from "./types.ts";

/** Returns the URL of a hook. As in the API server, its path is decoded, cleaned of `.` and `..`, and encoded again. */
export const getHookUrl = ({ url, service }: DefaultedWebhookEntry["clientConfig"]): string => {
  if (url !== undefined && URL.canParse(url)) {
    // Go keeps a port of 443 in the host, and URL drops it.
    const { host, hostname, port, pathname } = new URL(url);
    return `https://${port === "" && url.includes(`${hostname}:443`) ? `${hostname}:443` : host}${cleanPath(pathname)}`;
  }
  const { name, namespace, port, path }: JsonMap = isMap(service) ? service : {};
  return `https://${String(name)}.${String(namespace)}.svc:${String(port ?? 443)}${cleanPath(typeof path === "string" ? path : "/")}`;
};

/** Returns a URL path without "." and "..", as Go's client sends it. */
const cleanPath = (path: string): string => {
  let decoded = path;
  try {
    decoded = decodeURIComponent(path);
  } catch {
    // A URL path with invalid percent escapes stays as it is.
  }
  const steps: string[] = [];
  for (const step of decoded.split("/")) {
    if (step === "..") steps.pop();
    else if (step !== "" && step !== ".") steps.push(step);
  }
  return `/${steps.map((step) => encodeURIComponent(step).replaceAll("%3A", ":")).join("/")}`;
};

/** Returns the body of a webhook's answer, or the error text that the API server makes of the answer. */
export const parseWebhookHttpAnswer = (answer: { code: number; type: string; text: string }): HookCallResult => {
  const { code, type, text } = answer;
  // The API server also reads YAML. It isn't read here, because webhooks answer in JSON.
  const body = parseJson(text);
  if (code >= 200 && code <= 206) {
    if (text === "") return { failure: `0-length response with status code: ${code} and content type: ${type}` };
    return body === undefined
      ? { failure: "couldn't get version/kind; json parse error: the body is neither JSON nor YAML" }
      : { body };
  }
  if (isMap(body) && body.kind === "Status" && body.apiVersion === "v1" && typeof body.message === "string")
    return { failure: body.message };
  return {
    failure: messagesByCode[code] ?? (/^text\//.test(type) ? quoteBody(code, text) : quoteBody(code, "unknown")),
  };
};

const messagesByCode: Record<number, string> = {
  404: "the server could not find the requested resource",
  429: "the server has received too many requests and has asked us to try again later",
};

/** The API server quotes at most this many characters of a response. */
const mostQuoted = 2048;

const quoteBody = (code: number, text: string): string => {
  const start = text.slice(0, mostQuoted);
  return code >= 500
    ? `an error on the server (${JSON.stringify(start)}) has prevented the request from succeeding`
    : start;
};
