/**
 * NFS version 3 as an RPC program (RFC 1813 §3) with its upper-layer binding for RDMA (RFC 8267 §4).
 *
 * The procedures declare what may travel as a chunk: only the data of READ and WRITE and the paths of
 * SYMLINK and READLINK.
 */
import { defineProgram } from '#verbs-api/rpcrdma/core/program';
import { NFS_PROGRAM, NFS_VERSION } from './constants.ts';
import { fsinfo, fsstat, pathconf, readdir, readdirplus } from './directory-procedures.ts';
import {
  access,
  commit,
  getattr,
  lookup,
  read,
  readlink,
  setattr,
  write,
} from './file-procedures.ts';
import { create, link, mkdir, mknod, remove, rename, rmdir, symlink } from './name-procedures.ts';

/** NFS version 3. */
export const NFS3 = defineProgram({
  name: 'NFS',
  number: NFS_PROGRAM,
  version: NFS_VERSION,
  procedures: {
    getattr,
    setattr,
    lookup,
    access,
    readlink,
    read,
    write,
    create,
    mkdir,
    symlink,
    mknod,
    remove,
    rmdir,
    rename,
    link,
    readdir,
    readdirplus,
    fsstat,
    fsinfo,
    pathconf,
    commit,
  },
});
