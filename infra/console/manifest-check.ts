import { spawn } from "node:child_process";
import { join } from "node:path";
import { parseJson, toMap } from "#lib/json.ts";
import { Complaint } from "../cli/complaint.ts";
import { moduleExtension, packageRoot } from "../cli/roots.ts";
import type { CheckAnswer, CheckQuestion } from "./messages.ts";

const program = join(packageRoot, `infra/main${moduleExtension}`);
const timeoutMilliseconds = 30_000;
const maxOutputBytes = 16 * 1024 * 1024;
const namedOperations = ["CREATE", "UPDATE", "DELETE"];
/** An empty operation means CREATE or UPDATE, as `kubectl apply` would do. */
const operations = ["", ...namedOperations];

/** Runs `postern check` in a separate process, which can't slow the gateway down. Throws a Complaint for the page. */
export const checkManifests = async (
  question: CheckQuestion,
  file: string,
  signal: AbortSignal,
): Promise<CheckAnswer> => {
  const { text, cluster, user, operation } = question;
  const words = ["check", "-", "--output=json", `--config=${file}`, `--cluster=${cluster}`, `--as=${user}`];
  if (operation !== "") words.push(`--operation=${operation}`);
  const child = spawn(process.execPath, ["--max-old-space-size=512", program, ...words], {
    signal: AbortSignal.any([signal, AbortSignal.timeout(timeoutMilliseconds)]),
    killSignal: "SIGKILL",
  });
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const output = { stdout: "", stderr: "" };
  for (const name of ["stdout", "stderr"] as const)
    child[name].setEncoding("utf8").on("data", (chunk: string) => {
      output[name] += chunk;
      if (output[name].length > maxOutputBytes) child.kill("SIGKILL");
    });
  child.on("error", reject).on("close", () => resolve());
  // The process may end before it has read all of its input.
  child.stdin.on("error", () => {}).end(text);
  await promise.catch((error) => {
    const isTimeout = error.cause?.name === "TimeoutError";
    throw isTimeout
      ? new Complaint(`the check took longer than ${timeoutMilliseconds / 1000} seconds, and was ended`)
      : error;
  });
  const answer = parseJson(output.stdout);
  if (answer !== undefined) return answer as CheckAnswer;
  throw new Complaint(
    output.stderr.trim().slice(0, 2000) || `the check printed more than ${maxOutputBytes} bytes, and was ended`,
  );
};

/** Parses the body of a request for a check. Throws a Complaint if the body is invalid. */
export const parseCheckQuestion = (body: string): CheckQuestion => {
  const { text, cluster, user, operation } = toMap(parseJson(body));
  const isText = (value: unknown): value is string => typeof value === "string" && !value.includes("\0");
  if (!isText(text) || !isText(cluster) || !isText(user) || !isText(operation) || !operations.includes(operation))
    throw new Complaint(`text, cluster and user must be texts, and operation one of ${namedOperations.join(", ")}`);
  if (text.trim() === "") throw new Complaint("there is no manifest yet; paste one, or drop a file");
  return { text, cluster, user, operation };
};
