import type { Server } from "node:https";
import type { Socket } from "node:net";
import type { TLSSocket } from "node:tls";

/** The limits of connections to the gateway. */
export interface ConnectionLimits {
  connections: number;
  /** The maximum number of open connections from one address without a valid key. */
  keylessConnections: number;
  /** A connection may stay open for so many milliseconds without a valid key. */
  keylessMilliseconds: number;
  /** The time between two turns. In each turn, an address may begin up to `handshakesPerTurn` TLS handshakes. */
  handshakeTurnMilliseconds: number;
  /** A connection that an API server holds in reserve may stay open for so many milliseconds. */
  idleMilliseconds: number;
  /** The maximum number of connections that one address may hold in reserve. */
  reservesPerAddress: number;
}

/** An open connection. A reserve is one that an API server keeps open for later requests. */
interface Connection {
  address: string;
  socket: Socket;
  /** The TLS socket of this connection; undefined until its TLS handshake is done. */
  secure?: TLSSocket;
  /** True after a request on this connection had a valid key in its URL. */
  hasKey: boolean;
  isReserve: boolean;
}

interface ConnectionLimit {
  hasKey(socket: Socket): boolean;
  /** Remembers that a request on a connection had a valid key. After this call, no limit closes the connection. */
  admit(socket: Socket): void;
  /** Closes the connections on which the client has sent nothing after the TLS handshake. */
  closeUnused(): void;
}

/**
 * Limits the connections of clients without a valid key, so that these can't use up a server's connections. A
 * connection without a valid key is closed after a few seconds, or earlier if there are too many. But API servers also
 * keep unused connections open, as a reserve for later requests. So an address that had a request with a valid key on
 * another connection may keep some unused connections open for longer.
 */
export const limitKeylessConnections = (server: Server, limits: ConnectionLimits): ConnectionLimit => {
  /** The open connections in the order in which they were opened. */
  const open = new Map<string, Connection>();
  const bySocket = new WeakMap<Socket, Connection>();
  const listTrustedAddresses = () => {
    const admitted = open.values().filter((connection) => connection.hasKey);
    return new Set(admitted.map(({ address }) => address));
  };

  const startHandshake = queueHandshakes(server, limits.handshakeTurnMilliseconds);
  server.on("connection", (socket: Socket) => {
    const { remoteAddress: address } = socket;
    if (address === undefined) return void socket.destroy();
    const connection: Connection = { address, socket, hasKey: false, isReserve: false };
    const id = getConnectionId(socket);
    open.set(id, connection);
    let deadline = setTimeout(() => {
      if (connection.hasKey) return;
      const reserves = open.values().filter((candidate) => candidate.isReserve && candidate.address === address);
      const mayBeReserve = listTrustedAddresses().has(address) && [...reserves].length < limits.reservesPerAddress;
      connection.isReserve = isUnused(connection) && mayBeReserve;
      if (!connection.isReserve) return void socket.destroy();
      // A reserve has a second deadline, which is `idleMilliseconds` after the connection was opened.
      const restMilliseconds = limits.idleMilliseconds - limits.keylessMilliseconds;
      deadline = setTimeout(() => {
        if (isUnused(connection)) return void socket.destroy();
        // Its first request may have begun just before.
        deadline = setTimeout(() => connection.hasKey || socket.destroy(), limits.keylessMilliseconds);
      }, restMilliseconds);
    }, limits.keylessMilliseconds);
    socket.once("close", () => {
      clearTimeout(deadline);
      open.delete(id);
    });

    // If an address, or the server, has too many connections, the oldest connection without a key is closed.
    let openFromAddress = 0;
    let oldestFromAddress: Connection | undefined;
    for (const candidate of open.values())
      if (!candidate.hasKey && candidate.address === address) {
        oldestFromAddress ??= candidate;
        openFromAddress++;
      }
    if (openFromAddress > limits.keylessConnections) oldestFromAddress?.socket.destroy();
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

/** The number of TLS handshakes that one address may begin in a turn (see `queueHandshakes`). */
const handshakesPerTurn = 4;

/**
 * Removes the server's listener that begins TLS handshakes, and returns a function that calls this listener. The
 * function calls it at once for the first connections of an address, and in later turns for further ones. With many
 * connections from one address, the server still has time for other addresses. A connection that is closed before its
 * turn costs no handshake.
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
    // If a client disconnects before its turn, the socket emits an error. Without this listener, the process would end.
    socket.on("error", () => socket.destroy());
    if (turns.size === 0) setTimeout(takeTurn, milliseconds).unref();
    const turn = turns.get(address) ?? { begun: 0, waiting: [] };
    turns.set(address, turn);
    turn.waiting.push(socket);
    begin(turn);
  };
};

const isUnused = ({ secure }: Connection) => secure?.bytesRead === 0;

/** Returns an id that is the same for the TCP socket and for the TLS socket of a connection. */
const getConnectionId = ({ remoteAddress, remotePort, localAddress }: Socket) =>
  `${remoteAddress} ${remotePort} ${localAddress}`;
