import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { parseAllDocuments } from "yaml";
import { type RunningProgram, startProgram } from "../control-plane/process.ts";

// Runs the relay of docs/relay.yaml: Debian's HAProxy with the configuration from the manifest.

const program = "/usr/sbin/haproxy";

/** Returns the reason why the relay can't run on this machine; undefined if it can. */
export const findMissingRelay = (): string | undefined => {
  if (!existsSync(program)) return "HAProxy is not here: apt-get install haproxy installs it";
  return spawnSync("openssl", ["version"]).status === 0
    ? undefined
    : "openssl is not here: apt-get install openssl installs it";
};

/** The objects of docs/relay.yaml. */
export const relayObjects = parseAllDocuments(
  readFileSync(new URL("../../docs/relay.yaml", import.meta.url), "utf8"),
).map((document) => document.toJS());

/** The addresses and files that a pod of the relay uses. The relay forwards the API server's reviews to Postern. */
export interface RelaySurroundings {
  /** The address and the port of the Service. */
  service: string;
  /** The file with the relay's certificate. */
  certificate: string;
  /** The file with the CA of Postern's certificate, which the relay uses instead of the CAs of the system. */
  systemCa: string;
  /** The address of Postern. */
  postern: string;
  /** The host name of Postern. */
  host: string;
  /** The cluster's key, with which the path of Postern's URLs begins. */
  key: string;
}

/** Starts a replica of the relay. All replicas listen at the address of the Service, and the kernel chooses one. */
export const startRelay = async (
  folder: string,
  { service, certificate, systemCa, postern, host, key }: RelaySurroundings,
): Promise<RunningProgram> => {
  const config: string = relayObjects.find(({ kind }) => kind === "ConfigMap").data["haproxy.cfg"];
  // The manifest's configuration is used, with other addresses and files.
  const text = config
    .replace("bind :8443 ssl crt /tls/tls.crt\n", `bind ${service} ssl crt ${certificate}\n`)
    .replace("@system-ca", systemCa)
    .replace(/server postern "\S+"/, `server postern ${postern}`);
  const file = join(folder, "haproxy.cfg");
  await writeFile(file, text);
  const listenersBefore = countListeners(service);
  const relay = startProgram(program, ["-db", "-f", file], { POSTERN_HOST: host, POSTERN_KEY: key });
  let hasEnded = false;
  relay.ended.then(() => {
    hasEnded = true;
  });
  while (countListeners(service) === listenersBefore) {
    if (hasEnded) throw new Error(`HAProxy ended: ${relay.tail()}`);
    await wait(50);
  }
  return relay;
};

/** Counts the sockets that listen at an IPv4 address and a port. */
const countListeners = (service: string): number => {
  const [address = "", port] = service.split(":");
  const bytes = address.split(".").reverse();
  const toHex = (number: unknown, digits: number) => Number(number).toString(16).toUpperCase().padStart(digits, "0");
  // In /proc/net/tcp, a line has the local address as `0100007F:1F90`, the remote address, and the state 0A: it
  // listens.
  const listening = ` ${bytes.map((byte) => toHex(byte, 2)).join("")}:${toHex(port, 4)} 00000000:0000 0A `;
  return readFileSync("/proc/net/tcp", "utf8").split(listening).length - 1;
};
