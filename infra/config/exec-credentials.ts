// This file runs the credential plugins of kubeconfigs (users[].user.exec) as kubectl does.
import { spawn } from "node:child_process";
import { dirname, resolve, sep } from "node:path";
import {
  type ClusterCredentials,
  createRenewedSource,
  isHeaderSafeToken,
  type RenewedSource,
} from "#lib/cluster/credentials.ts";
import { UnansweredError } from "#lib/cluster/https-request.ts";
import { isMap, parseJson, toList, toMap } from "#lib/json.ts";
import { escapeUnsafeCharacters, toOneLine, truncateText } from "../cli/terminal.ts";

/** The cluster for which a plugin returns credentials. */
export interface ExecTarget {
  /** The kubeconfig that names the command. */
  file: string;
  cluster: { content: Record<string, unknown> };
  server: string;
  /** The text of the cluster's certificate-authority. */
  caText: string | undefined;
}

/** A credential plugin: the member `exec` of a kubeconfig's user. */
interface ExecPlugin {
  apiVersion: string;
  command: string;
  args: string[];
  env: { name: string; value: string }[];
  interactiveMode: string;
  installHint: string;
}

const apiVersions = ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"];
const interactiveModes = ["Never", "IfAvailable", "Always"];

/**
 * The seconds after which a command is stopped. An interactive one may ask the user, for instance to log in by a
 * browser.
 */
const limits = { alone: 60, interactive: 300 };
/** The most bytes that a command may print. */
const mostBytes = 1024 * 1024;

/** Returns a source of credentials. Runs the plugin at the first use, when they expire, and if they are refused. */
export const createExecCredentialSource = (
  exec: unknown,
  target: ExecTarget,
  seconds = limits,
): RenewedSource<ClusterCredentials> => {
  const plugin = parsePlugin(exec, target.file);
  const provideClusterInfo = toMap(exec).provideClusterInfo === true;
  return createRenewedSource(async () => {
    const createError = (sentence: string) =>
      new UnansweredError(`the command "${plugin.command}" of ${target.file} ${sentence}`, "credentials");
    const isInteractive = plugin.interactiveMode !== "Never" && process.stdin.isTTY === true;
    if (plugin.interactiveMode === "Always" && !isInteractive)
      throw createError("has the interactiveMode Always, but standard input is no terminal");
    const spec = { ...(provideClusterInfo && { cluster: describeCluster(target) }), interactive: isInteractive };
    const info = JSON.stringify({ kind: "ExecCredential", apiVersion: plugin.apiVersion, spec });
    const limit = isInteractive ? seconds.interactive : seconds.alone;
    const printed = await runPlugin(plugin, target.file, info, { isInteractive, limit }).catch((error: Error) => {
      throw createError(error.message);
    });
    const credentials = parseCredentials(printed, plugin.apiVersion);
    if (typeof credentials === "string") throw createError(credentials);
    return credentials;
  });
};

/** Reads the member `exec` of a kubeconfig's user. Throws if it is not valid. */
const parsePlugin = (exec: unknown, file: string): ExecPlugin => {
  const { apiVersion, command, args, env, interactiveMode, installHint } = toMap(exec);
  // The caller puts the source of the kubeconfig first: "--kubeconfig FILE finds exec in FILE with no command".
  const fail = (sentence: string) => new Error(`finds exec in ${file} with ${sentence}`);
  if (!isText(command) || command === "") throw fail("no command");
  if (!isText(apiVersion) || !apiVersions.includes(apiVersion))
    throw fail(`the apiVersion "${apiVersion}", which must be ${apiVersions.join(" or ")}`);
  // Only v1beta1 has a default.
  const mode = interactiveMode ?? (apiVersion === apiVersions[1] ? "IfAvailable" : undefined);
  if (!isText(mode) || !interactiveModes.includes(mode))
    throw fail(`the interactiveMode "${mode}", which must be ${interactiveModes.join(", ")}`);
  const words = toList(args);
  if (!words.every(isText)) throw fail("args that are no texts");
  const variables = toList(env);
  const isVariable = (value: unknown): value is ExecPlugin["env"][number] => {
    const { name, value: content = "" } = toMap(value);
    return name !== "" && isText(name) && isText(content);
  };
  if (!variables.every(isVariable)) throw fail("an env whose name or value is no text");
  const hint = typeof installHint === "string" ? installHint : "";
  return { apiVersion, command, args: words, env: variables, interactiveMode: mode, installHint: hint };
};

/** Reports whether a value can be an argument or a variable of a program. */
const isText = (value: unknown): value is string => typeof value === "string" && !value.includes("\0");

/** Describes the cluster for a plugin, in the same format as kubectl. */
const describeCluster = ({ cluster: { content }, server, caText }: ExecTarget) => {
  const execExtension = toList(content.extensions).find(
    (entry) => toMap(entry).name === "client.authentication.k8s.io/exec",
  );
  return {
    server: String(content.server ?? server),
    ...(content["tls-server-name"] ? { "tls-server-name": content["tls-server-name"] } : {}),
    ...(caText && { "certificate-authority-data": Buffer.from(caText).toString("base64") }),
    ...(content["disable-compression"] === true && { "disable-compression": true }),
    config: toMap(execExtension).extension ?? null,
  };
};

/** Runs a plugin and returns its standard output. Throws an error such as "failed with exit code 1". */
const runPlugin = async (
  { command, args, env, installHint }: ExecPlugin,
  file: string,
  info: string,
  { isInteractive, limit }: { isInteractive: boolean; limit: number },
): Promise<string> => {
  const { promise, resolve: end, reject: fail } = Promise.withResolvers<string>();
  const variables = Object.fromEntries(env.map(({ name, value = "" }) => [name, value]));
  // A command with a slash is a path relative to the kubeconfig's folder. Other commands are looked up in PATH.
  const child = spawn(command.includes(sep) ? resolve(dirname(file), command) : command, args, {
    env: { ...process.env, ...variables, KUBERNETES_EXEC_INFO: info },
    stdio: [isInteractive ? "inherit" : "ignore", "pipe", "pipe"],
    windowsHide: true,
  });
  const stop = (sentence: string) => {
    child.kill("SIGKILL");
    // Another process, started by the command, may still have these streams open.
    child.stdout?.destroy();
    child.stderr?.destroy();
    fail(new Error(sentence));
  };
  const timer = setTimeout(() => stop(`did not end within ${limit} seconds`), limit * 1000);
  const chunks: Buffer[] = [];
  let bytes = 0;
  child.stdout?.on("data", (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > mostBytes) stop(`printed more than ${mostBytes} bytes`);
    else chunks.push(chunk);
  });
  let errorOutput = "";
  child.stderr?.setEncoding("utf8").on("data", (text: string) => {
    errorOutput = (errorOutput + text).slice(-4096);
    // The user must see the questions of the command.
    if (isInteractive) process.stderr.write(escapeUnsafeCharacters(text, keepLayout));
  });
  child.on("error", ({ code, message }: NodeJS.ErrnoException) => {
    const hint = installHint === "" ? "" : `; ${toOneLine(installHint)}`;
    fail(new Error(code === "ENOENT" ? `is not installed here${hint}` : `can't be run: ${message}`));
  });
  child.on("close", (code, signal) => {
    if (code === 0) return end(Buffer.concat(chunks).toString());
    const last = truncateText(toOneLine(errorOutput.trim().split("\n").at(-1) ?? ""), 300);
    const how = code === null ? `was ended by ${signal}` : `failed with exit code ${code}`;
    fail(new Error(`${how}${last === "" ? "" : `: ${last}`}`));
  });
  return promise.finally(() => clearTimeout(timer));
};

/** Replaces an unsafe character by a question mark, except line breaks and tabs. */
const keepLayout = (character: string): string => (/[\n\r\t]/.test(character) ? character : "?");

/** Returns the credentials in a plugin's output, or a sentence about a mistake in it. It never quotes the output. */
const parseCredentials = (
  printed: string,
  apiVersion: string,
): { value: ClusterCredentials; until: number } | string => {
  const content = parseJson(printed);
  if (!isMap(content) || content.kind !== "ExecCredential" || content.apiVersion !== apiVersion)
    return `printed no ExecCredential of ${apiVersion}`;
  const status = toMap(content.status);
  const [token, cert, key] = [status.token, status.clientCertificateData, status.clientKeyData].map(
    (text) => text ?? "",
  );
  if (typeof token !== "string" || typeof cert !== "string" || typeof key !== "string")
    return "printed a token, certificate or key that is no text";
  if (!cert !== !key) return "printed a client certificate without its key, or a key without its certificate";
  if (!token && !cert) return "printed neither a token nor a client certificate";
  if (token && !isHeaderSafeToken(token)) return "printed a token that no header can carry";
  const until = status.expirationTimestamp ? Date.parse(String(status.expirationTimestamp)) : Number.POSITIVE_INFINITY;
  if (Number.isNaN(until)) return "printed an expirationTimestamp that is no time";
  return { value: { ...(token && { token }), ...(cert && { cert, key }) }, until };
};
