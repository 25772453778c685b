// The compiled kernels as bytes of heddle_nccl_cuda.so.
.macro image name, file
  .globl heddle_kernels_\name
  .hidden heddle_kernels_\name
  .balign 64
heddle_kernels_\name:
  .incbin "\file"
  .byte 0
.endm
  .section .rodata
  image sm_80, "sm_80.image"
  image sm_90, "sm_90.image"
  image sm_100, "sm_100.image"
  image ptx, "ptx.image"
  .section .note.GNU-stack, "", @progbits
