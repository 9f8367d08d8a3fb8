import type { Server } from "node:https";
import type { Socket } from "node:net";
import type { TLSSocket } from "node:tls";

export interface ConnectionLimits {
  connections: number;
  /** The maximum of open connections from one address that have shown no valid key. */
  keylessConnections: number;
  /** Milliseconds that a connection may stay open without a valid key. */
  keyless: number;
  /** Milliseconds after which an address with many new connections may begin more TLS handshakes. */
  turn: number;
  /** Milliseconds that a connection held in reserve may stay open. */
  idle: number;
  /** The maximum of connections held in reserve for one address. */
  reserves: number;
}

interface Connection {
  address: string;
  socket: Socket;
  /** The TLS socket of this connection; undefined until its TLS handshake is done. */
  secure?: TLSSocket;
  hasKey: boolean;
  isReserve: boolean;
}

interface ConnectionLimit {
  hasKey(socket: Socket): boolean;
  /** Notes that a connection has shown a valid key; from then on, no limit closes it. */
  admit(socket: Socket): void;
  /** Closes the connections that have sent nothing since the TLS handshake. */
  closeUnused(): void;
}

/**
 * Keeps clients without a valid key from using up a server's connections: such a connection is closed after a few
 * seconds, or earlier when there are too many. API servers hold unused connections in reserve; some of these may
 * therefore stay if their address has another connection that has shown a valid key.
 */
export const limitKeylessConnections = (server: Server, limits: ConnectionLimits): ConnectionLimit => {
  /** The open connections in the order in which they were opened. */
  const open = new Map<string, Connection>();
  const bySocket = new WeakMap<Socket, Connection>();
  const listTrustedAddresses = () => {
    const admitted = open.values().filter((connection) => connection.hasKey);
    return new Set(admitted.map(({ address }) => address));
  };

  const startHandshake = queueHandshakes(server, limits.turn);
  server.on("connection", (socket: Socket) => {
    const { remoteAddress: address } = socket;
    if (address === undefined) return void socket.destroy();
    const connection: Connection = { address, socket, hasKey: false, isReserve: false };
    const id = getConnectionId(socket);
    open.set(id, connection);
    let deadline = setTimeout(() => {
      if (connection.hasKey) return;
      const reserves = open.values().filter((candidate) => candidate.isReserve && candidate.address === address);
      connection.isReserve =
        isUnused(connection) && listTrustedAddresses().has(address) && [...reserves].length < limits.reserves;
      if (!connection.isReserve) return void socket.destroy();
      deadline = setTimeout(() => isUnused(connection) && socket.destroy(), limits.idle - limits.keyless);
    }, limits.keyless);
    socket.once("close", () => {
      clearTimeout(deadline);
      open.delete(id);
    });

    let openFromAddress = 0;
    let oldestOwn: Connection | undefined;
    for (const candidate of open.values())
      if (!candidate.hasKey && candidate.address === address) {
        oldestOwn ??= candidate;
        openFromAddress++;
      }
    if (openFromAddress > limits.keylessConnections) oldestOwn?.socket.destroy();
    else if (open.size > limits.connections) {
      const keyless = [...open.values()].filter((candidate) => !candidate.hasKey);
      const trusted = listTrustedAddresses();
      const oldest = keyless.find((candidate) => !trusted.has(candidate.address)) ?? keyless[0];
      oldest?.socket.destroy();
    }
    startHandshake(socket, address);
  });
  server.on("secureConnection", (secure) => {
    const connection = open.get(getConnectionId(secure));
    if (connection === undefined) return void secure.destroy();
    connection.secure = secure;
    bySocket.set(secure, connection);
  });

  return {
    hasKey: (socket) => bySocket.get(socket)?.hasKey === true,
    admit: (socket) => {
      const connection = bySocket.get(socket);
      if (connection) connection.hasKey = true;
    },
    closeUnused: () => {
      for (const connection of open.values()) if (isUnused(connection)) connection.secure?.destroySoon();
    },
  };
};

/** The number of TLS handshakes that one address may begin in a turn. */
const handshakesPerTurn = 4;

/**
 * Takes over the server's listener that begins TLS handshakes, and returns a function that calls it: at once for the
 * first connections of an address, in later turns for more of them. A flood from one address thus leaves time for others,
 * and its connections that are closed before their turn cost no handshake.
 */
const queueHandshakes = (server: Server, milliseconds: number) => {
  const listeners = server.listeners("connection");
  server.removeAllListeners("connection");
  const turns = new Map<string, { begun: number; waiting: Socket[] }>();
  const takeTurn = () => {
    for (const [address, turn] of turns) {
      turn.begun = 0;
      begin(turn);
      if (turn.begun === 0) turns.delete(address);
    }
    if (turns.size > 0) setTimeout(takeTurn, milliseconds).unref();
  };
  const begin = (turn: { begun: number; waiting: Socket[] }) => {
    while (turn.waiting.length > 0 && turn.begun < handshakesPerTurn) {
      const socket = turn.waiting.shift();
      if (socket === undefined || socket.destroyed) continue;
      turn.begun++;
      for (const listener of listeners) listener.call(server, socket);
    }
  };
  return (socket: Socket, address: string): void => {
    // A socket without a listener for errors would end the process if its client disconnects before its turn.
    socket.on("error", () => socket.destroy());
    if (turns.size === 0) setTimeout(takeTurn, milliseconds).unref();
    const turn = turns.get(address) ?? { begun: 0, waiting: [] };
    turns.set(address, turn);
    turn.waiting.push(socket);
    begin(turn);
  };
};

const isUnused = ({ secure }: Connection) => secure?.bytesRead === 0;

/** Returns the same id for a connection's socket and for the TLS socket on it. */
const getConnectionId = ({ remoteAddress, remotePort, localAddress }: Socket) =>
  `${remoteAddress} ${remotePort} ${localAddress}`;
