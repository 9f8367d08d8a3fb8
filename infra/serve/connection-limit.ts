import type { Server } from "node:https";
import type { Socket } from "node:net";
import type { TLSSocket } from "node:tls";

export interface ConnectionLimits {
  connections: number;
  /** The maximum of open connections from one address that have shown no valid key. */
  keylessConnections: number;
  /** Milliseconds that a connection may stay open without a valid key. */
  keyless: number;
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

    const keyless = [...open.values()].filter((candidate) => !candidate.hasKey);
    const own = keyless.filter((candidate) => candidate.address === address);
    if (own.length > limits.keylessConnections) own[0]?.socket.destroy();
    else if (open.size > limits.connections) {
      const trusted = listTrustedAddresses();
      const oldest = keyless.find((candidate) => !trusted.has(candidate.address)) ?? keyless[0];
      oldest?.socket.destroy();
    }
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

const isUnused = ({ secure }: Connection) => secure?.bytesRead === 0;

/** Returns the same id for a connection's socket and for the TLS socket on it. */
const getConnectionId = ({ remoteAddress, remotePort, localAddress }: Socket) =>
  `${remoteAddress} ${remotePort} ${localAddress}`;
