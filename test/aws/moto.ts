import { spawn, spawnSync } from "node:child_process";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { freePorts } from "../cluster/process.ts";

/** AWS's APIs on this machine, without accounts or bills: where they are, and how that ends. */
export interface Moto {
  url: string;
  stop(): void;
}

const venv = process.env.POSTERN_MOTO;
const command = venv === undefined ? "moto_server" : join(venv, "bin/moto_server");

/** Why a test that needs it is skipped; nothing where it is there. */
export const motoMissing = () =>
  spawnSync(command, ["--help"]).status === 0 ? undefined : "moto is not installed: .ci/run installs it";

/** Has this process take moto for AWS from now on, for the services that these variables name. */
export const startMoto = async (...variables: `AWS_ENDPOINT_URL_${string}`[]): Promise<Moto> => {
  const [port] = await freePorts(1);
  const url = `http://127.0.0.1:${port}`;
  const server = spawn(command, ["-H", "127.0.0.1", "-p", `${port}`], { stdio: "ignore" });
  const identity = { AWS_ACCESS_KEY_ID: "a", AWS_SECRET_ACCESS_KEY: "b", AWS_SESSION_TOKEN: "c" };
  Object.assign(process.env, identity, Object.fromEntries(variables.map((name) => [name, url])));
  const isThere = () => fetch(`${url}/moto-api/`).then(Boolean, () => false);
  while (!(await isThere())) {
    if (server.exitCode !== null) throw new Error(`${command} ended with ${server.exitCode}`);
    await wait(100);
  }
  return { url, stop: () => void server.kill() };
};
